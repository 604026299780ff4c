"""What runs inside the measured process: standard library and torch only.

The user's environment may lack everything else that vivace needs (pydantic, rich, …), so nothing here may
import it; the lint step checks that. Each rank writes one JSON payload; ``vivace.measure.merge`` reads them.
"""

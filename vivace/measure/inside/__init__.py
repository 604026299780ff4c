"""What runs inside the measured process: standard library and torch only.

The user's environment may lack everything else that vivace needs (pydantic, rich, …), so nothing here may
import it; the lint step checks that. Each rank writes one JSON payload; ``vivace.measure.merge`` reads them.

``install`` puts the ``patches`` in place around one ``session``, which walks through the ``stages`` (their order:
``stages/course.py``) and writes the ``payload``. ``training`` is what they share. What is seen comes from ``steps``
(marks and phases), ``counting`` (FLOPs), ``profiling`` (kernels), ``facts`` (objects and devices) and ``comparing``
(what makes two runs comparable).
"""

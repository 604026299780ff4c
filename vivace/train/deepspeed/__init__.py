"""DeepSpeed's JSON in terms of vivace: every key is translated, not needed, or not supported, with the reason.

- ``keys.toml``: keys whose answer does not depend on their value
- ``reading``: the file, flattened to dotted keys
- ``translate``: the others, and the commands that correspond
"""

"""Names for people: where a code object is from."""

from __future__ import annotations

import functools
import os
import sys
from types import CodeType

__all__ = ["library_name", "short_place"]


@functools.lru_cache(maxsize=4096)
def library_name(code: CodeType) -> str:
    """``json.dumps``, ``torch.nn.modules.linear.Linear.forward``."""
    function = getattr(code, "co_qualname", code.co_name).replace("<locals>.", "")
    module = _module_of(code.co_filename)
    return f"{module}.{function}" if module else function


def _module_of(filename: str) -> str:
    if filename.startswith("<"):
        return filename.strip("<>").replace("frozen ", "")
    roots = [root.rstrip(os.sep) + os.sep for root in sys.path if root]
    inside = [filename[len(root) :] for root in roots if filename.startswith(root)]
    path = min(inside, key=len, default=os.path.basename(filename))
    parts = os.path.splitext(path)[0].split(os.sep)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def short_place(code: CodeType, line: int) -> str:
    """``transformers/trainer.py:2671``"""
    return f"{os.sep.join(code.co_filename.split(os.sep)[-2:])}:{line}"

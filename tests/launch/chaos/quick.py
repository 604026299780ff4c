"""Runs a training script without ``torch._dynamo``, whose import takes half of a short training's time.

    python quick.py SCRIPT [ARGUMENTS]

The optimizer and DDP import it for ``torch.compile``, which the script must not use.
"""

from __future__ import annotations

import runpy
import sys
import types
from typing import Any


def _same(function: Any = None, *_: Any, **__: Any) -> Any:
    return function if callable(function) else lambda inner: inner


class _Nothing:
    """No to every question, and nothing done at every call."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __bool__(self) -> bool:
        return False


class _Absent(types.ModuleType):
    disable = staticmethod(_same)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()


sys.modules["torch._dynamo"] = _Absent("torch._dynamo")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")

"""Runs a training script without two parts of torch whose import takes most of a short training's time.

    python quick.py SCRIPT [ARGUMENTS]

The optimizer and DDP import ``torch._dynamo`` for ``torch.compile``; the other part is for tensors without data. The
script must use neither.
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


for name in ("torch._dynamo", "torch._meta_registrations"):
    sys.modules[name] = _Absent(name)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")

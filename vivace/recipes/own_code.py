"""``FILE.py:FUNCTION``: a model, a data set or a loss of the user's own, named in a recipe.

The file is run as a program is: only name files that you trust.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vivace.errors import UserError

__all__ = ["is_own_code", "load_function"]


def is_own_code(text: str) -> bool:
    file, colon, name = text.rpartition(":")
    return bool(colon) and file.endswith(".py") and name.isidentifier()


def load_function(text: str, key: str) -> Callable[..., Any]:
    """``key`` is the setting that names it, for errors. Errors inside the file keep their traceback."""
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise UserError(f"{key}: there is no file {path}", hint="the path is relative to where vivace was started")
    sys.path.insert(0, str(path.resolve().parent))  # it may import its neighbours
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)  # so that workers can find its classes
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    function = getattr(module, name, None)
    if not callable(function):
        known = sorted(each for each, value in vars(module).items() if callable(value) and not each.startswith("_"))
        raise UserError(f"{key}: {path} has no function {name}", hint=f"it has {', '.join(known[:8]) or 'none'}")
    result: Callable[..., Any] = function
    return result

"""Parts of torch that only vivace imports are imported without leaving ``.pyc`` files in the user's environment."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

__all__ = ["unwritten"]


@contextlib.contextmanager
def unwritten() -> Iterator[None]:
    """What the script imports itself is compiled and kept as ever."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before

"""Which line of the user's own code is responsible? Walks the call stack past torch, libraries and vivace itself."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from types import FrameType
from typing import Any

import torch

import vivace

__all__ = ["is_library", "is_torch_or_ours", "place_of", "short_name", "source_line", "user_place"]

_LIBRARIES = tuple(
    os.path.abspath(path) for path in {*sysconfig.get_paths().values(), os.path.dirname(torch.__file__)} if path
)
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_VIVACE = os.path.dirname(os.path.abspath(vivace.__file__))
_OURS = tuple(os.path.join(_VIVACE, part) + os.sep for part in ("measure", "practices"))


def user_place(depth: int = 1) -> dict[str, Any] | None:
    """The nearest line of the user's own code above the caller, as ``{"file", "line", "code"}``."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return place_of(frame) if frame is not None else None


def place_of(frame: FrameType) -> dict[str, Any]:
    return {"file": frame.f_code.co_filename, "line": frame.f_lineno, "code": source_line(frame)}


def short_name(frame: FrameType | None) -> str | None:
    """``transformers/trainer.py:2671``"""
    if frame is None:
        return None
    parts = frame.f_code.co_filename.split(os.sep)
    return f"{os.sep.join(parts[-2:])}:{frame.f_lineno}"


def is_torch_or_ours(filename: str) -> bool:
    path = os.path.abspath(filename)
    return filename.startswith("<") or path.startswith((*_OURS, _TORCH)) or os.sep + "site-packages" not in path


def is_library(filename: str) -> bool:
    path = os.path.abspath(filename)
    return (
        filename.startswith("<") or path.startswith(_OURS) or any(path.startswith(root + os.sep) for root in _LIBRARIES)
    )


def source_line(frame: FrameType) -> str:
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()[:120]

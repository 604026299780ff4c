"""Which line of the user's own code is responsible? Walks the call stack past torch, libraries and vivace itself.

The user's own code is what lies in the script's folder, in the package that it was started from (``python -m``) or in
the working folder. Everything else is a library, also outside site-packages: on PYTHONPATH, in a conda package folder,
in an archive, in a repository's folder for other people's code.
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
import sysconfig
from types import FrameType
from typing import Any

import torch

import vivace

__all__ = [
    "is_library", "is_ours", "is_torch", "is_torch_or_ours", "place_of", "short_name", "source_line", "user_frame",
    "user_place",
]  # fmt: skip

_LIBRARIES = tuple(
    os.path.abspath(path) + os.sep
    for path in {*sysconfig.get_paths().values(), os.path.dirname(torch.__file__)}
    if path
)
_STANDARD = tuple(os.path.abspath(sysconfig.get_paths()[name]) + os.sep for name in ("stdlib", "platstdlib"))
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_VIVACE = os.path.dirname(os.path.abspath(vivace.__file__))
_OURS = tuple(os.path.join(_VIVACE, part) + os.sep for part in ("measure", "practices", "scale"))
_INSTALLED = ("site-packages", "dist-packages")
_OF_OTHERS = frozenset(
    {*_INSTALLED, "third_party", "third-party", "thirdparty", "vendor", "vendored", "_vendor", "external", "extern"}
)
_ARCHIVES = (".zip", ".egg", ".whl", ".pyz")
_STARTED_IN = os.getcwd()


def user_place(depth: int = 1) -> dict[str, Any] | None:
    """The nearest line of the user's own code above the caller, as ``{"file", "line", "code"}``."""
    frame, _via = user_frame(sys._getframe(depth))
    return place_of(frame) if frame is not None else None


def user_frame(frame: FrameType | None) -> tuple[FrameType | None, FrameType | None]:
    """The nearest frame of the user's own code, from this one on, and the first of a library (a trainer) before it.

    Where the script itself is not on the stack (a thread of a library), the nearest that is not installed.
    """
    via = not_installed = None
    while frame is not None and is_library(frame.f_code.co_filename):
        if via is None and not is_torch_or_ours(frame.f_code.co_filename):
            via = frame
        if not_installed is None and not _is_installed(frame.f_code.co_filename):
            not_installed = frame
        frame = frame.f_back
    return (frame, via) if frame is not None else (not_installed, via if via is not not_installed else None)


def place_of(frame: FrameType) -> dict[str, Any]:
    return {"file": frame.f_code.co_filename, "line": frame.f_lineno, "code": source_line(frame)}


def short_name(frame: FrameType | None) -> str | None:
    """``transformers/trainer.py:2671``"""
    if frame is None:
        return None
    parts = frame.f_code.co_filename.split(os.sep)
    return f"{os.sep.join(parts[-2:])}:{frame.f_lineno}"


def is_ours(filename: str) -> bool:
    return os.path.abspath(filename).startswith(_OURS)


def is_torch(filename: str) -> bool:
    return os.path.abspath(filename).startswith(_TORCH)


def is_torch_or_ours(filename: str) -> bool:
    """Of torch, of vivace or of Python itself: no name that would tell the user anything."""
    path = os.path.abspath(filename)
    standard = path.startswith(_STANDARD) and not any(name in path for name in _INSTALLED)
    return filename.startswith("<") or standard or path.startswith((*_OURS, _TORCH))


@functools.lru_cache(maxsize=4096)
def is_library(filename: str) -> bool:
    path = os.path.abspath(filename)
    return _is_installed(filename) or not any(_is_own(path, root) for root in _roots())


def _is_installed(filename: str) -> bool:
    path = os.path.abspath(filename)
    return filename.startswith("<") or path.startswith((*_OURS, *_LIBRARIES))


def _is_own(path: str, root: str) -> bool:
    if not path.startswith(root):
        return False
    folders = path[len(root) :].split(os.sep)[:-1]
    return not any(folder in _OF_OTHERS or folder.endswith(_ARCHIVES) for folder in folders)


@functools.lru_cache(maxsize=1)
def _roots() -> tuple[str, ...]:
    """Folders of the user's own code. The script is ``__mp_main__`` in a process that was spawned."""
    folders = [_STARTED_IN]
    for name in ("__mp_main__", "__main__"):
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if file is not None:
            folder = os.path.dirname(os.path.abspath(file))
            for _ in (getattr(module, "__package__", None) or "").split(".")[1:]:
                folder = os.path.dirname(folder)
            folders.append(folder)
    return tuple(folder.rstrip(os.sep) + os.sep for folder in folders if folder.strip(os.sep))


def source_line(frame: FrameType) -> str:
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()[:120]

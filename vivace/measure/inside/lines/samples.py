"""One look at the stack of a thread: which line of the user's code, which call beneath it, where it ends.

Hot path: a walk of some twenty frames a thousand times a second. Code objects are kept, frames never: a frame would
keep every tensor of the step alive.
"""

from __future__ import annotations

from types import CodeType, FrameType
from typing import NamedTuple

from vivace.measure.inside.places import is_library, is_ours, is_torch, is_torch_or_ours

__all__ = ["Collection", "Sample", "Stack", "callbacks", "look"]


class Stack(NamedTuple):
    """``code`` and ``at``: the innermost line of the user's own code, None where there is none. ``via``: the first call
    of a library beneath it. ``near``: the innermost line that is neither torch's nor Python's own (a trainer's, a data
    library's). ``leaf``: where the stack ends; ``ours``: in one of vivace's own functions, which are left out of the
    rest. ``at`` and ``near_at`` are offsets in the bytecode."""

    code: CodeType | None
    at: int
    via: CodeType | None
    near: CodeType | None
    near_at: int
    leaf: CodeType
    ours: bool = False


class Sample(NamedTuple):
    """``began_ns`` and ``ended_ns``: of the look itself, which is not charged to anybody. ``cpu_ns``: what the thread
    has computed so far. ``no_core_ns``: how long it could have run and had no core.
    ``blocked``: how often it has given up its core by itself (a sleep, a lock, a read)."""

    began_ns: int
    ended_ns: int
    cpu_ns: int
    no_core_ns: int
    blocked: int
    stack: Stack


class Collection(NamedTuple):
    """One run of the garbage collector, and the instruction that it interrupted."""

    began_ns: int
    ended_ns: int
    code: CodeType
    at: int


_USER, _LIBRARY, _TORCH, _STANDARD, _OURS = range(5)
_kinds: dict[str, int] = {}  # by file
callbacks: set[CodeType] = set()
"""Functions of vivace's that Python calls when something of the user's ends: the time before them is not vivace's."""


def _kind_of(filename: str) -> int:
    if not is_library(filename):
        kind = _USER
    elif is_ours(filename):
        kind = _OURS
    elif is_torch(filename):
        kind = _TORCH
    else:
        kind = _STANDARD if is_torch_or_ours(filename) else _LIBRARY
    _kinds[filename] = kind
    return kind


def look(frame: FrameType, bottom: CodeType | None = None) -> Stack:
    """``bottom``: whoever called this code is not looked at. A worker is forked out of the training loop."""
    leaf = via = near = None
    near_at = 0
    ours = False
    only_standard = True  # so far: what vivace calls of Python's own library is vivace's
    here: FrameType | None = frame
    while here is not None:
        code = here.f_code
        if code is bottom:
            break
        kind = _kinds.get(code.co_filename)
        if kind is None:
            kind = _kind_of(code.co_filename)
        if kind == _OURS:
            ours = ours or (only_standard and code not in callbacks)
        else:
            leaf = leaf or code
            only_standard = only_standard and kind == _STANDARD
            if kind in (_USER, _LIBRARY) and near is None:
                near, near_at = code, here.f_lasti
            if kind == _USER:
                return Stack(code, here.f_lasti, via, near, near_at, leaf, ours)
            via = code
        here = here.f_back
    return Stack(None, 0, via, near, near_at, leaf or frame.f_code, ours)

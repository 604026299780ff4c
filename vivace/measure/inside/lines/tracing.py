"""Times every line of the user's code in a few steps: slow, and exact where sampling is not.

Python looks for signals after calls, not after operators (``a @ b``, ``x in list``) nor when it frees memory, so a
sample lands on the next call. Tracing sees each line begin and end. It makes loops in Python many times slower, so
its times only decide between lines (``second_look``).
"""

from __future__ import annotations

import sys
import time
from collections import deque
from types import CodeType, FrameType
from typing import Any

from vivace.measure.inside.patches import unseen_by_dynamo
from vivace.measure.inside.places import is_library

__all__ = ["LineTracer"]

_RECENT = 8  # lines before a line that may have spent what was charged to it

Key = tuple[CodeType, int]


class LineTracer:
    """For the calling thread, from ``begin`` to ``finish``. ``spent_ns``: by code and line, without other lines of the
    user's. ``before``: the lines that ran shortly before a line."""

    def __init__(self) -> None:
        self.spent_ns: dict[Key, int] = {}
        self.before: dict[Key, set[Key]] = {}
        self._recent: deque[Key] = deque(maxlen=_RECENT)
        self._callers: list[Key | None] = []
        self._current: Key | None = None
        self._since_ns = 0

    @staticmethod
    def can_run() -> bool:
        """A debugger, or a tool that measures coverage, is not disturbed."""
        return sys.gettrace() is None

    def begin(self) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:  # what runs already has not been seen to begin
            if not is_library(frame.f_code.co_filename):
                frame.f_trace = self._local
            frame = frame.f_back
        self._since_ns = time.perf_counter_ns()
        sys.settrace(unseen_by_dynamo(self._global.__func__, and_beneath=True).__get__(self))  # type: ignore[attr-defined]

    def finish(self) -> None:
        sys.settrace(None)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_trace is not None and getattr(frame.f_trace, "__self__", None) is self:
                frame.f_trace = None
            frame = frame.f_back

    def _global(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event != "call" or is_library(frame.f_code.co_filename):
            return None
        key = (frame.f_code, frame.f_lineno)
        self._charge(key)
        self._callers.append(self._current)
        return self._leave_at(key)

    def _local(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            key = (frame.f_code, frame.f_lineno)
            self._charge(key)
            return self._leave_at(key)
        if event == "return":
            self._charge(None)
            return self._leave_at(self._callers.pop() if self._callers else None)
        return self._local

    def _charge(self, following: Key | None) -> None:
        """What was spent since the last event goes to the line that ran."""
        now, current = time.perf_counter_ns(), self._current
        if current is not None:
            self.spent_ns[current] = self.spent_ns.get(current, 0) + now - self._since_ns
            if not self._recent or self._recent[-1] != current:
                self._recent.append(current)
        if following is not None and following != current:
            self.before.setdefault(following, set()).update(self._recent)

    def _leave_at(self, key: Key | None) -> Any:
        self._current = key
        self._since_ns = time.perf_counter_ns()
        return self._local

"""When and why a rank ended, told to the launcher: of several that ended, the first one is the cause.

A rank that is gone makes the others fail a moment later, and a launcher that looks now and then cannot tell which came
first. So each rank leaves the time of its end before its connections close. One that was killed leaves nothing: it
counts from when the launcher saw it end. Standard library only: the launcher reads this file, too.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["RankEnd", "read_ends", "tell_the_end"]

_LONGEST = 300  # characters of an error


@dataclass(frozen=True)
class RankEnd:
    at: float
    """Seconds since 1970."""
    error: str = ""
    """The uncaught exception, in one line."""


def tell_the_end(folder: Path, rank: int) -> None:
    """At the end of this process, after the script's own exit handlers."""
    pid, really_open = os.getpid(), open

    def tell() -> None:
        if os.getpid() != pid:
            return  # a forked child
        with contextlib.suppress(OSError), really_open(folder / f"ended-{rank}.json", "w", encoding="utf-8") as file:
            json.dump(asdict(RankEnd(time.time(), _uncaught())), file)

    atexit.register(tell)


def read_ends(folder: Path) -> dict[int, RankEnd]:
    """By rank."""
    ends = {}
    for path in folder.glob("ended-*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            ends[int(path.stem.partition("-")[2])] = RankEnd(**json.loads(path.read_text()))
    return ends


def _uncaught() -> str:
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is None:
        return ""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:_LONGEST]

"""A rank that is stopped (SIGSTOP, a debugger that was left) neither ends nor goes on, and all others wait for it.

Looked at by the launcher, in ``/proc``. A loader's worker that is stopped holds its rank up just the same, so each
rank's whole tree of processes is looked at. Standard library only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Stopped"]

_LOOKS = 30  # one after the other, a second apart; looks and not seconds, for the launcher may be stopped itself


class Stopped:
    """``look`` about once a second: the rank that was found stopped at each of the last looks, and its process."""

    def __init__(self, looks: int = _LOOKS) -> None:
        self.looks = looks
        self._seen: dict[int, int] = {}  # rank → at how many looks in a row

    def look(self, processes: Sequence[int]) -> tuple[int, int] | None:
        """``processes``: of each rank. If all of several ranks are stopped, somebody suspended the job on purpose."""
        stopped = {rank: found for rank, process in enumerate(processes) if (found := _stopped_in(process))}
        if len(processes) > 1 and len(stopped) == len(processes):
            stopped = {}
        self._seen = {rank: self._seen.get(rank, 0) + 1 for rank in stopped}
        return next(((rank, stopped[rank]) for rank, seen in self._seen.items() if seen >= self.looks), None)


def _stopped_in(process: int) -> int:
    """The first stopped process of this tree; 0: none."""
    if _state(process) == "T":
        return process
    return next((found for child in _children(process) if (found := _stopped_in(child))), 0)


def _state(process: int) -> str:
    """The letter after the name, which stands in parentheses and may hold anything."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    return ""


def _children(process: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    return children

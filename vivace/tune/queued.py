"""How long a trial waited in Slurm's queue: that time is not charged to the budget of a tune.

The first act of a trial's job is to make a file in the trial's folder. Called by ``trials``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

__all__ = ["marked", "queued_s"]

_STARTED = "started"
_MARK = ': >>"$0"; exec "$@"'  # every task does it; only the one that makes the file sets its time


def marked(prefix: Sequence[str], command: Sequence[str], folder: Path) -> tuple[str, ...]:
    """The command behind ``prefix`` (``srun …``), with the mark between them; without a prefix nothing waits."""
    if not prefix:
        return tuple(command)
    return (*prefix, "sh", "-c", _MARK, str((folder / _STARTED).absolute()), *command)


def queued_s(folder: Path, began: float, ended: float) -> float:
    """Of the time between two readings of ``time.time()``, the part before the job began; all of it if it never did."""
    started = ended
    with contextlib.suppress(OSError):
        started = (folder / _STARTED).stat().st_mtime  # a node's clock may be a little ahead or behind
    return min(max(0.0, started - began), ended - began)

"""What became of the practices that a process was asked for, as it leaves it in the run's folder."""

from __future__ import annotations

import contextlib
from pathlib import Path

from vivace.protocol.answers import PracticeAnswer, answers_from_text

__all__ = ["read_told"]


def read_told(folder: Path) -> dict[str, PracticeAnswer]:
    """What became of the practices that were asked for, as the process of the lowest rank tells it."""
    for path in sorted(folder.glob("practices-*.json"), key=_rank_in_name):
        with contextlib.suppress(OSError, ValueError):
            return answers_from_text(path.read_text())
    return {}


def _rank_in_name(path: Path) -> int:
    return int(path.stem.split("-")[1])

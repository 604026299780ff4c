"""How far measured figures lie from planned ones, and the interval that holds most of them on a file that
was left out.

Errors are logarithms of measured over planned, file by file. The interval of a set of files runs between
its quantiles, each file counting once whatever its length, stretched from their median by a factor. The
factor is the smallest for which files hold enough of their rows in the interval that *the other files* give.
Pure; called by ``benchmarks/plan_interval.py``, which writes ``data/intervals.toml``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

from vivace.plan.run.intervals import Spread

__all__ = ["AIM", "FileErrors", "inside", "left_out_share", "spread_of", "stretch_for"]

AIM = 0.95
"""Share of the rows that the printed interval should hold."""
FULL_WEIGHT_ROWS = 5
"""A file of fewer rows counts less: one row is no sample of a file."""
LARGEST_STRETCH = 5.0


@dataclass(frozen=True)
class FileErrors:
    """ln(measured / planned) of the rows of one file, planned without what that file had taught."""

    file: str
    logs: tuple[float, ...]

    @property
    def weight(self) -> float:
        return min(1.0, len(self.logs) / FULL_WEIGHT_ROWS)


def _quantile(pairs: Sequence[tuple[float, float]], share: float) -> float:
    """Of (value, weight) pairs: the first value at which ``share`` of the weight is reached."""
    ordered = sorted(pairs)
    total, seen = sum(weight for _, weight in ordered), 0.0
    for value, weight in ordered:
        seen += weight
        if seen >= share * total:
            return value
    return ordered[-1][0]


def spread_of(files: Sequence[FileErrors], stretch: float = 1.0, aim: float = AIM) -> Spread:
    """Quantiles over all files, each counting once, stretched from their median; the estimate lies inside."""
    pairs = [(log, each.weight / len(each.logs)) for each in files for log in each.logs]
    tail = (1 - aim) / 2
    low, middle, high = (_quantile(pairs, share) for share in (tail, 0.5, 1 - tail))
    return Spread(
        exp(min(0.0, middle - stretch * (middle - low))),
        exp(max(0.0, middle + stretch * (high - middle))),
    )


def inside(each: FileErrors, spread: Spread) -> float:
    """Share of the file's rows that the interval holds."""
    return sum(spread.low <= exp(log) <= spread.high for log in each.logs) / len(each.logs)


def left_out_share(files: Sequence[FileErrors], stretch: float, aim: float = AIM) -> float:
    """Mean over files of the share of rows inside the interval that the other files give."""
    held = 0.0
    for each in files:
        others = [other for other in files if other is not each]
        held += each.weight * inside(each, spread_of(others, stretch, aim))
    return held / sum(each.weight for each in files)


def stretch_for(files: Sequence[FileErrors], aim: float = AIM) -> float:
    """The smallest factor (in hundredths, at least 1) at which files that are left out hold ``aim`` of their rows."""
    steps = range(100, int(100 * LARGEST_STRETCH) + 1)
    return next((step / 100 for step in steps if left_out_share(files, step / 100, aim) >= aim), LARGEST_STRETCH)

"""The speedup of one arm over another, from pairs of neighbouring windows. Pure arithmetic.

The median of the pairs' logarithms, with a range between two of them by the binomial law: it asks nothing of the noise
but that a window is as likely above as below. It is an estimate for a search: the proof, in fresh processes, has the
interval that is calibrated.
"""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

__all__ = ["FEWEST", "LOOKS", "Estimate", "estimate"]

LOOKS = (10, 16, 26, 42, 68)
"""Pairs after which the figures are looked at; after the last one what is not decided stays so."""
FEWEST = LOOKS[0]
_OUTSIDE = 0.02  # that the range misses the median, at each look


class Estimate(NamedTuple):
    ratio: float
    low: float
    high: float
    pairs: int


def estimate(before_s: list[float], after_s: list[float]) -> Estimate:
    """``before_s[n]`` and ``after_s[n]``: seconds per step of neighbouring windows without and with the arm.

    >>> estimate([2.0] * 10, [1.0] * 10)
    Estimate(ratio=2.0, low=2.0, high=2.0, pairs=10)
    """
    logs = sorted(math.log(before / after) for before, after in zip(before_s, after_s))
    cut = _cut(len(logs))
    values = statistics.median(logs), logs[cut], logs[-1 - cut]
    ratio, low, high = (math.exp(value) for value in values)
    return Estimate(ratio, low, high, len(logs))


def _cut(count: int) -> int:
    """How many may be left out at each end: then at most ``_OUTSIDE`` of draws miss the median.

    >>> _cut(10), _cut(26)
    (0, 6)
    """
    tail, cut = 0.0, 0
    for place in range(count // 2):
        tail += math.comb(count, place) / 2**count
        if 2 * tail > _OUTSIDE:
            break
        cut = place
    return cut

"""The figures that a race reports: an entry's own, and how much sooner it arrives than the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vivace.race.statistics.arrived import mean_of, ratio_of_means
from vivace.race.statistics.looks import FIRST_LOOK
from vivace.race.statistics.ranks import ratio_by_ranks
from vivace.race.statistics.sample import Estimate, Sample

__all__ = ["amount_to_target", "is_clear", "may_end", "speedup"]

_FEWEST_BY_ORDER = 6
"""Runs whose smallest and largest enclose the median in 95 % of cases: 1 - 2 / 2**n."""


def speedup(baseline: Sample, entry: Sample, share: float) -> Estimate:
    """How many times sooner ``entry`` arrives."""
    if baseline.all_arrived and entry.all_arrived:
        return ratio_of_means(baseline, entry, share)
    return ratio_by_ranks(baseline, entry, share)


def amount_to_target(sample: Sample, share: float = 0.95) -> Estimate:
    """The geometric mean if every run arrived; else the median, between two of the runs.

    With one limit for all runs this median is that of Kaplan and Meier: a run that never arrived is later than all.

    >>> amount_to_target(Sample((1.0, math.inf, 3.0, 2.0)))
    Estimate(value=2.5, low=0.0, high=inf)
    """
    if sample.all_arrived:
        return mean_of(sample, share)
    ordered = sorted(sample.amounts)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return Estimate(middle, *_by_order(ordered, share))


def _by_order(ordered: list[float], share: float) -> tuple[float, float]:
    """The innermost two runs that enclose the median."""
    if len(ordered) < _FEWEST_BY_ORDER:
        return 0.0, math.inf
    outside = 0.0
    for place in range(len(ordered)):
        outside += 2 * math.comb(len(ordered), place) / 2 ** len(ordered)
        if outside > 1 - share:
            return ordered[place - 1], ordered[-place]
    raise AssertionError("unreachable: half of the runs are on each side")


def is_clear(ratio: Estimate) -> bool:
    """Whether the entry is faster, or slower, beyond doubt."""
    return ratio.low > 1 or ratio.high < 1


def may_end(round_number: int, seeds: int, ratios: Sequence[Estimate]) -> bool:
    """Whether a race over ``seeds`` rounds needs no more after ``round_number`` of them: every answer is clear."""
    return round_number >= seeds or (round_number >= FIRST_LOOK and all(map(is_clear, ratios)))

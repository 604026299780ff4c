"""Do the timed steps vary so much that their median says little? Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import pstdev

from vivace.measure.statistics import spread
from vivace.records.measurement import StepsVary

__all__ = ["steps_vary"]

# Of the 19 records in price_measurements.jsonl, 17 lie between 1.1 and 1.6, one at 2.4 and one at 3.9; ResNet-50 on an
# H200 (measure_dlojz_resnet50_h200.json) at 1.1. The job that made this note necessary: 3 to 137 ms per step.
_P90_OVER_P10 = 3.0
# A median far from the mean: some steps are very long (a loader that stalls now and then: 7.7 and 17.5 ms), or short.
_MEAN_OVER_MEDIAN = 1.5
_FEWEST_STEPS = 5


def steps_vary(steps_ms: Sequence[float], phases_ms: Mapping[str, Sequence[float]]) -> StepsVary | None:
    """None where the median is a fair figure for a step, or there are too few steps to say."""
    if len(steps_ms) < _FEWEST_STEPS or min(steps_ms) <= 0:
        return None
    figures = spread(steps_ms)
    skewed = not 1 / _MEAN_OVER_MEDIAN < figures.mean / figures.median < _MEAN_OVER_MEDIAN
    if figures.p90 < _P90_OVER_P10 * figures.p10 and not skewed:
        return None
    return StepsVary(
        shortest_ms=min(steps_ms),
        longest_ms=max(steps_ms),
        p10_ms=figures.p10,
        p90_ms=figures.p90,
        median_ms=figures.median,
        mean_ms=figures.mean,
        phase=max(phases_ms, key=lambda phase: pstdev(phases_ms[phase]), default=None) if phases_ms else None,
    )

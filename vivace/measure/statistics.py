"""The one convention for figures: median, tenth and ninetieth percentile (linear interpolation), and the mean."""

from __future__ import annotations

from collections.abc import Sequence

from vivace.records.measurement import Spread

__all__ = ["percentile", "spread"]


def percentile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between the closest ranks, as numpy does by default.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.5
    """
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def spread(values: Sequence[float]) -> Spread:
    return Spread(
        median=percentile(values, 0.5),
        p10=percentile(values, 0.1),
        p90=percentile(values, 0.9),
        mean=sum(values) / len(values),
    )

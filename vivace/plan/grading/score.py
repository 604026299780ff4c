"""Scores of predictions: percentage errors and rank correlation. Pure; called by ``validate.py``."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["mean_absolute_percentage_error", "percent_error", "quantile", "spearman"]


def percent_error(predicted: float, measured: float) -> float:
    return 100.0 * (predicted - measured) / measured


def mean_absolute_percentage_error(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Mean of |predicted - measured| / measured in percent; None without pairs."""
    if not pairs:
        return None
    return sum(abs(percent_error(predicted, measured)) for predicted, measured in pairs) / len(pairs)


def quantile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in range(start, end + 1):
            ranks[order[place]] = (start + end) / 2
        start = end + 1
    return ranks


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Rank correlation, ties averaged; None for fewer than three points or a constant side."""
    if len(left) < 3:
        return None
    a, b = _ranks(left), _ranks(right)
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    top = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    bottom = (sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)) ** 0.5
    return top / bottom if bottom else None

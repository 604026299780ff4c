"""Curves over the steps: some as a band between the lowest and the highest, some as lines. Gaps stay gaps.

The drawing is stretched to the width of the page with strokes that keep their width; the figures of the axes are plain
text beside it, so that they stay readable on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import TypeGuard

from markupsafe import Markup

__all__ = ["curves", "ticks_over"]

Series = Sequence[float | None]
_SIZE = 1000  # of the drawing's own units, both ways
_MOST_POINTS = 800


def curves(band: Sequence[Series], lines: Sequence[Series], label: str, first_step: int = 1) -> Markup | None:
    """None when there is nothing finite to draw."""
    every = max(1, math.ceil(max(map(len, (*band, *lines)), default=0) / _MOST_POINTS))
    band, lines = [s[::every] for s in band], [s[::every] for s in lines]
    finite = [value for series in (*band, *lines) for value in series if _is_finite(value)]
    if not finite:
        return None
    ticks = ticks_over(min(finite), max(finite))
    low, high = min(*ticks, *finite), max(*ticks, *finite)
    count = max(len(series) for series in (*band, *lines))

    def x(n: float) -> float:
        return _SIZE * n / max(count - 1, 1)

    def y(value: float) -> float:
        return _SIZE * (high - value) / (high - low)

    drawn = [
        Markup('<line class="grid" x1="0" x2="{0}" y1="{1:.1f}" y2="{1:.1f}"/>').format(_SIZE, y(t)) for t in ticks
    ]
    if band:
        drawn += _band(band, x, y)
    drawn += [_line(run, "after", x, y) for series in lines for run in _runs(series)]
    return _frame(drawn, [(100 * y(t) / _SIZE, t) for t in ticks], first_step, first_step + (count - 1) * every, label)


def _frame(drawn: Sequence[Markup], ticks: Sequence[tuple[float, float]], first: int, last: int, label: str) -> Markup:
    figures = [Markup('<span style="top:{:.2f}%">{}</span>').format(top, f"{value:,.6g}") for top, value in ticks]
    return Markup(
        '<div class="plot"><div class="ticks">{}</div>'
        '<svg role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg></div>'
        '<p class="steps"><span>step {:,}</span><span>step {:,}</span></p>'
    ).format(Markup("").join(figures), label, _SIZE, _SIZE, Markup("").join(drawn), first, last)


def ticks_over(low: float, high: float) -> list[float]:
    """Round figures from below ``low`` to above ``high``."""
    from matplotlib.ticker import MaxNLocator

    if high - low <= 1e-12 * max(abs(low), abs(high)):
        margin = 0.1 * abs(low) or 1.0
        low, high = low - margin, high + margin
    return [float(value) for value in MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)]


def _is_finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value) and abs(value) < 1e300  # its distance to others must be finite


def _runs(series: Series) -> Iterator[list[tuple[int, float]]]:
    """The stretches without a gap, as (position, value)."""
    run: list[tuple[int, float]] = []
    for n, value in enumerate(series):
        if _is_finite(value):
            run.append((n, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _line(
    run: Sequence[tuple[int, float]], style: str, x: Callable[[float], float], y: Callable[[float], float]
) -> Markup:
    if len(run) == 1:  # one step alone between gaps: a short stroke, or nobody would see it
        (n, value) = run[0]
        run = [(n - 0.2, value), (n + 0.2, value)]  # type: ignore[list-item]
    points = " ".join(f"{x(n):.1f},{y(value):.1f}" for n, value in run)
    return Markup('<polyline class="{}" points="{}"/>').format(style, points)


def _band(band: Sequence[Series], x: Callable[[float], float], y: Callable[[float], float]) -> list[Markup]:
    columns = [[v for v in column if _is_finite(v)] for column in zip_longest(*band)]
    lowest = [min(column) if column else None for column in columns]
    highest = [max(column) if column else None for column in columns]
    drawn = []
    for low_run, high_run in zip(_runs(lowest), _runs(highest), strict=True):
        outline = [*high_run, *reversed(low_run)]
        points = " ".join(f"{x(n):.1f},{y(value):.1f}" for n, value in outline)
        drawn.append(Markup('<polygon class="band" points="{}"/>').format(points))
    return drawn + [_line(run, "before", x, y) for series in band for run in _runs(series)]

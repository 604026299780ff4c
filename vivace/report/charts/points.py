"""Points over one axis: trials over time with the best so far, or over the values of one parameter.

Positions are percentages without a view box, so that points stay round at any width.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from vivace.report.charts.curves import ticks_over

__all__ = ["Point", "points", "side"]

_MOST_POINTS = 2000


@dataclass(frozen=True)
class Point:
    """``x`` between 0 and 1; ``style`` is a class of the style sheet; ``label`` shows when one points at it."""

    x: float
    y: float
    style: str
    label: str


def points(
    shown: Sequence[Point], label: str, below: Sequence[tuple[float, str]], front: Sequence[tuple[float, float]] = ()
) -> Markup | None:
    """``below``: names at positions (0 to 1) of the axis below. ``front``: a line of steps. None: nothing to draw."""
    finite = [point for point in shown if math.isfinite(point.y) and abs(point.y) < 1e300]
    if not finite:
        return None
    finite = finite[:: -(-len(finite) // _MOST_POINTS)]
    low, high = _range([point.y for point in finite])
    ticks = [tick for tick in ticks_over(low, high) if low <= tick <= high] or [low, high]

    def y(value: float) -> float:
        return 100 * (high - min(max(value, low), high)) / (high - low)

    drawn = [
        Markup('<line class="grid" x1="0" x2="100%" y1="{0:.2f}%" y2="{0:.2f}%"/>').format(y(tick)) for tick in ticks
    ]
    drawn += _steps([(100 * at, y(value)) for at, value in front])
    drawn += [
        Markup('<circle class="{}" cx="{:.2f}%" cy="{:.2f}%" r="{}"><title>{}</title></circle>').format(
            point.style, 100 * point.x, y(point.y), 5 if point.style == "best" else 3, point.label
        )
        for point in sorted(finite, key=lambda point: point.style == "best")
    ]
    figures = [Markup('<span style="top:{:.2f}%">{}</span>').format(y(tick), f"{tick:,.6g}") for tick in ticks]
    names = [
        Markup('<span class="{}" style="left:{:.2f}%">{}</span>').format(side(at), 100 * at, text)
        for at, text in _apart(sorted(below))
    ]
    return Markup(
        '<div class="plot points"><div class="ticks">{}</div><svg role="img" aria-label="{}">{}</svg></div>'
        '<p class="below">{}</p>'
    ).format(Markup("").join(figures), label, Markup("").join(drawn), Markup("").join(names))


def _steps(corners: Sequence[tuple[float, float]]) -> list[Markup]:
    line = '<line class="front" x1="{:.2f}%" y1="{:.2f}%" x2="{:.2f}%" y2="{:.2f}%"/>'
    drawn = []
    for (x1, y1), (x2, y2) in itertools.pairwise(corners):
        drawn.append(Markup(line).format(x1, y1, x2, y1))
        if y1 != y2:
            drawn.append(Markup(line).format(x2, y1, x2, y2))
    return drawn


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Without the worst tenth where it lies far off: one that diverged must not flatten all others. Those are drawn at
    the edge."""
    ordered = sorted(values)
    inner = ordered[len(ordered) // 10 : len(ordered) - len(ordered) // 10]
    spread = inner[-1] - inner[0] or abs(inner[0]) or 1.0
    low, high = max(ordered[0], inner[0] - 2 * spread), min(ordered[-1], inner[-1] + 2 * spread)
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        return low - spread / 10, high + spread / 10
    return low, high


def side(at: float) -> str:
    """How a name below lies at its place: those at the ends stay within the chart."""
    return "start" if at < 0.05 else "end" if at > 0.95 else "middle"


def _apart(names: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Without names that would lie over each other."""
    kept: list[tuple[float, str]] = []
    for at, text in names:
        if not kept or at - kept[-1][0] > 0.012 * (len(text) + len(kept[-1][1])):
            kept.append((at, text))
    return kept

"""Lines over any quantity: learning curves over time, losses over a learning rate (on a logarithmic axis).

Drawn as ``curves`` does: stretched to the page, with the figures of the axes as plain text beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from vivace.report.charts.curves import _is_finite, ticks_over

__all__ = ["Line", "lines_over"]

_SIZE = 1000


@dataclass(frozen=True)
class Line:
    """``style``: a class of the page's style sheet."""

    style: str
    points: Sequence[tuple[float, float]]


def lines_over(
    lines: Sequence[Line], label: str, in_words: Callable[[float], str], target: float | None = None,
    log_x: bool = False, upright: Sequence[tuple[str, float]] = (),
) -> Markup | None:  # fmt: skip
    """``in_words``: a place on the axis below. ``target``: a level. ``upright``: (style, place) of vertical lines.

    None when there is nothing finite to draw.
    """
    kept = [
        Line(line.style, [p for p in line.points if all(map(_is_finite, p)) and (p[0] > 0 or not log_x)])
        for line in lines
    ]
    points = [point for line in kept for point in line.points]
    if not points:
        return None
    place = math.log if log_x else float
    left, right = (place(end([x for x, _ in points])) for end in (min, max))
    levels = [y for _, y in points] + ([target] if target is not None else [])
    ticks = ticks_over(min(levels), max(levels))
    low, high = min(*ticks, *levels), max(*ticks, *levels)

    def at(x: float, y: float) -> tuple[float, float]:
        across = (place(x) - left) / (right - left) if right > left else 0.5
        return _SIZE * across, _SIZE * (high - y) / (high - low)

    level = Markup('<line class="{}" x1="0" x2="{}" y1="{:.1f}" y2="{:.1f}"/>')
    drawn = [level.format("grid", _SIZE, at(points[0][0], t)[1], at(points[0][0], t)[1]) for t in ticks]
    if target is not None:
        y = at(points[0][0], target)[1]
        drawn.append(level.format("grid target", _SIZE, y, y))
    for style, position in upright:
        x = at(position, low)[0]
        drawn.append(
            Markup('<line class="grid {0}" x1="{1:.1f}" x2="{1:.1f}" y1="0" y2="{2}"/>').format(style, x, _SIZE)
        )
    drawn += [_drawn(line, at) for line in kept if line.points]
    figures = [
        Markup('<span style="top:{:.2f}%">{}</span>').format(100 * at(points[0][0], t)[1] / _SIZE, f"{t:,.6g}")
        for t in ticks
    ]
    ends = [min(x for x, _ in points), max(x for x, _ in points)]
    return Markup(
        '<div class="plot"><div class="ticks">{}</div>'
        '<svg role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg></div>'
        '<p class="steps"><span>{}</span><span>{}</span></p>'
    ).format(Markup("").join(figures), label, _SIZE, _SIZE, Markup("").join(drawn), *map(in_words, ends))


def _drawn(line: Line, at: Callable[[float, float], tuple[float, float]]) -> Markup:
    places = [at(x, y) for x, y in line.points]
    if len(places) == 1:  # a short stroke, or nobody would see it
        places = [(places[0][0] - 4, places[0][1]), (places[0][0] + 4, places[0][1])]
    return Markup('<polyline class="{}" points="{}"/>').format(
        line.style, " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    )

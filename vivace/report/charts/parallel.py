"""Parallel coordinates: an axis for each parameter and the metric, a line for each trial, the best in colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from vivace.report.charts.points import side

__all__ = ["Axis", "parallel"]

_SIZE = 1000
_MOST_LINES = 300


@dataclass(frozen=True)
class Axis:
    """``ends``: what stands at its bottom and its top."""

    name: str
    ends: tuple[str, str]


def parallel(axes: Sequence[Axis], lines: Sequence[tuple[Sequence[float], str]], label: str) -> Markup | None:
    """``lines``: positions on each axis, 0 (bottom) to 1, and a class of the style sheet; later ones lie on top."""
    if len(axes) < 2 or not lines:
        return None
    lines = lines[-_MOST_LINES:]
    places = [_SIZE * n / (len(axes) - 1) for n in range(len(axes))]
    drawn = [
        Markup('<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="{1}"/>').format(place, _SIZE)
        for place in places
    ]
    for positions, style in lines:
        corners = " ".join(f"{x:.1f},{_SIZE * (1 - at):.1f}" for x, at in zip(places, positions, strict=True))
        drawn.append(Markup('<polyline class="{}" points="{}"/>').format(style, corners))
    names = [
        Markup('<span class="{}" style="left:{:.2f}%"><b>{}</b><br>{}<br>{}</span>').format(
            side(place / _SIZE), place / 10, axis.name, f"↑ {axis.ends[1]}", f"↓ {axis.ends[0]}"
        )
        for place, axis in zip(places, axes, strict=True)
    ]
    return Markup(
        '<div class="plot parallel">'
        '<svg role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg></div>'
        '<p class="below axes">{}</p>'
    ).format(label, _SIZE, _SIZE, Markup("").join(drawn), Markup("").join(names))

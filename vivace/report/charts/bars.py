"""Horizontal bars: a step as a stack of its parts, one bar of a comparison, one rung of a waterfall.

Positions are percentages without a view box, so a bar is as wide as the screen and never blurred or squeezed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

__all__ = ["Piece", "bar", "span_bar"]

_HEIGHT_PX = 22


@dataclass(frozen=True)
class Piece:
    """A part of a bar. ``style`` is a class of the style sheet."""

    style: str
    value: float
    label: str


def bar(pieces: Sequence[Piece], full: float) -> Markup:
    """``pieces`` one after the other; ``full`` is what the whole width stands for."""
    scale = 100 / full if full > 0 and math.isfinite(full) else 0.0
    drawn, left = [], 0.0
    for piece in pieces:
        width = scale * piece.value if math.isfinite(piece.value) else 0.0
        drawn.append(_rectangle(left, width, piece.style, piece.label))
        left += width
    return _frame(drawn, ", ".join(piece.label for piece in pieces))


def span_bar(start: float, end: float, full: float, style: str, label: str) -> Markup:
    """A bar that floats between two values; the thin rest before it shows what is left."""
    scale = 100 / full if full > 0 and math.isfinite(full) else 0.0
    low, high = sorted((start, end))
    left, width = scale * low, scale * (high - low)
    return _frame([_rectangle(0, left, "rest", ""), _rectangle(left, max(width, 0.3), style, label)], label)


def _rectangle(left: float, width: float, style: str, label: str) -> Markup:
    return Markup('<rect class="{}" x="{:.3f}%" y="0" width="{:.3f}%" height="100%"><title>{}</title></rect>').format(
        style, left, width, label
    )


def _frame(drawn: Sequence[Markup], label: str) -> Markup:
    return Markup('<svg class="bar" role="img" aria-label="{}" width="100%" height="{}">{}</svg>').format(
        label, _HEIGHT_PX, Markup("").join(drawn)
    )

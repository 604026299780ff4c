"""Ratios with their confidence intervals on one common axis, with a mark at 1× (no change)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from vivace.records.proof import Interval
from vivace.report.figures import interval as in_words

__all__ = ["Axis", "interval_chart"]

_ROW_PX = 16


@dataclass(frozen=True)
class Axis:
    """Logarithmic, so that twice as fast and half as fast are equally far from 1×."""

    low: float
    high: float

    @staticmethod
    def over(values: Iterable[Interval | None]) -> Axis:
        ends = [end for value in values if value for end in (value.low, value.high) if 0 < end < math.inf]
        low, high = min([1.0, *ends]), max([1.0, *ends])
        room = 0.04 * max(math.log(high / low), 0.1)
        return Axis(low * math.exp(-room), high * math.exp(room))

    def percent(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        return 100 * math.log(value / self.low) / math.log(self.high / self.low)


def interval_chart(values: Sequence[tuple[str, Interval | None]], axis: Axis) -> Markup:
    """One row for each ``(style, interval)``: a line over the interval and a dot at its median."""
    one = axis.percent(1.0)
    height = _ROW_PX * len(values)
    drawn = [Markup('<line class="one" x1="{0:.2f}%" x2="{0:.2f}%" y1="0" y2="{1}"/>').format(one, height)]
    drawn += [_row(style, value, axis, _ROW_PX * (n + 0.5)) for n, (style, value) in enumerate(values) if value]
    label = "; ".join(f"{style} {in_words(value)}" for style, value in values)
    return Markup('<svg class="intervals" role="img" aria-label="{}" width="100%" height="{}">{}</svg>').format(
        label, height, Markup("").join(drawn)
    )


def _row(style: str, value: Interval, axis: Axis, y: float) -> Markup:
    return Markup(
        '<g class="{0}"><title>{0}: {1}</title><line x1="{2:.2f}%" x2="{3:.2f}%" y1="{4:g}" y2="{4:g}"/>'
        '<circle cx="{5:.2f}%" cy="{4:g}" r="4.5"/></g>'
    ).format(
        style, in_words(value), axis.percent(value.low), axis.percent(value.high), y, axis.percent(value.median)
    )  # fmt: skip

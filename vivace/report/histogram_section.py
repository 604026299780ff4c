"""The magnitudes of activations and gradients on the page: their histograms, and the sweep over loss scales."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from vivace.records.histograms import Histogram, Histograms, LossScaling
from vivace.report.charts.over import Line, lines_over
from vivace.report.histogram_words import magnitudes, shares_in_words, verdicts, worst_layers
from vivace.report.rendering import render

__all__ = ["histogram_section"]

_SMALLEST, _LARGEST = -24, 16  # of fp16: the powers of two between which its numbers are


def histogram_section(record: Histograms) -> Markup:
    swept = [scaling for scaling in record.scaling if any(one.lost or one.overflow for one in scaling.scales)]
    return render(
        "measurement_histograms",
        record=record,
        chart=_histogram_chart(record.together),
        sweep=_sweep(swept) if swept else None,
        kinds=[(number, str(one.numbers)) for number, one in enumerate(record.together)],
        formats=[(number, scaling.format) for number, scaling in enumerate(swept)],
        names=[shares.format for shares in record.together[0].formats] if record.together else [],
        rows=[_row(str(one.numbers), one) for one in record.together],
        worst=[_row(f"{one.layer}: {one.numbers}", one) for one in worst_layers(record)],
        verdicts=verdicts(record),
    )


def _row(name: str, histogram: Histogram) -> tuple[str, str, list[str]]:
    return name, magnitudes(histogram), [shares_in_words(shares) for shares in histogram.formats]


def _histogram_chart(histograms: Sequence[Histogram]) -> Markup | None:
    lines = []
    for number, one in enumerate(histograms):
        shares = [(float(one.first_octave + n), 100 * count / one.values) for n, count in enumerate(one.counts)]
        ends = [(float(one.first_octave - 1), 0.0), (float(one.first_octave + len(one.counts)), 0.0)]
        lines.append(Line(f"entry-{number}", [ends[0], *shares, ends[1]] if shares else []))
    places = [x for line in lines for x, _share in line.points]
    upright = [("target", float(at)) for at in (_SMALLEST, _LARGEST) if places and min(places) <= at <= max(places)]
    label = "Share of the non-zero values by magnitude, in percent"
    return lines_over(lines, label, _power, upright=upright)


def _sweep(swept: Sequence[LossScaling]) -> Markup | None:
    lines = [
        Line(f"entry-{number}", [(float(s.scale_log2), 100 * (s.lost + s.overflow)) for s in scaling.scales])
        for number, scaling in enumerate(swept)
    ]
    return lines_over(lines, "Share of gradients too small or too large at each loss scale, in percent", _power)


def _power(exponent: float) -> str:
    return f"2^{exponent:.0f}"

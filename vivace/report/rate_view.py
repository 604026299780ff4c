"""A learning-rate range test, in a terminal (a sketch of the smoothed loss) and on a page."""

from __future__ import annotations

import math

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.text import Text

from vivace.records.rates import RateSearch
from vivace.report.charts.over import Line, lines_over
from vivace.report.common_sections import command_line, machine_section
from vivace.report.rendering import render

__all__ = ["rate_sections", "rate_title", "rate_view", "sketch"]

_WIDTH, _HEIGHT = 64, 9


def rate_title(search: RateSearch) -> str:
    return f"Learning rate {search.suggested:.2g}" if search.suggested is not None else "No learning rate stands out"


def rate_view(search: RateSearch) -> RenderableType:
    parts: list[RenderableType] = [Text(), *(Text(line) for line in sketch(search)), Text()]
    for rate, says in _suggestions(search):
        parts.append(Text(f"{rate:>9}  {says}", style="bold green" if says.startswith("begin") else ""))
    if search.suggested is None:
        parts.append(Text("The loss does not fall at any rate: no suggestion.", style="bold yellow"))
    own = ", ".join(f"{rate:g}" for rate in search.own_rates)
    parts.append(Text(f"{search.optimizer}, its own rate at the first step {own}; {search.ended}.", style="dim"))
    parts.append(Text("One step at each rate: prove a rate over seeds with `vivace race`.", style="dim"))
    parts += [Text(f"· {note}", style="yellow") for note in search.notes]
    return Group(*parts)


def _suggestions(search: RateSearch) -> list[tuple[str, str]]:
    told = [
        (search.suggested, "begin with this one: half a decade below the lowest loss"),
        (search.steepest, "the loss falls fastest"),
        (search.tenth_of_best, "a tenth of the rate with the lowest loss"),
        (search.diverges, "the loss rises above where it began"),
    ]
    return [(f"{rate:.2g}", says) for rate, says in told if rate is not None]


def sketch(search: RateSearch, width: int = _WIDTH, height: int = _HEIGHT) -> list[str]:
    """The smoothed loss over the logarithm of the rate, as lines of text."""
    tried = search.tried
    if len(tried) < 2:
        return []
    left, right = math.log(tried[0].rate), math.log(tried[-1].rate)
    columns: list[list[float]] = [[] for _ in range(width)]
    for one in tried:
        place = (math.log(one.rate) - left) / (right - left)
        columns[min(width - 1, int(place * width))].append(one.smoothed)
    means = [sum(column) / len(column) if column else None for column in columns]
    known = [mean for mean in means if mean is not None]
    low, high = min(known), max(known)
    rows = [[" "] * width for _ in range(height)]
    for x, mean in enumerate(means):
        if mean is not None:
            y = round((high - mean) / (high - low) * (height - 1)) if high > low else height // 2
            rows[y][x] = "•"
    lines = [f"{_label(n, low, high, height):>9} │{''.join(row).rstrip()}" for n, row in enumerate(rows)]
    ends = f"{tried[0].rate:.0e}", f"{tried[-1].rate:.0e}"
    return [*lines, f"{'':>9} └{'─' * width}", f"{'':>10} {ends[0]}{ends[1]:>{width - len(ends[0])}}"]


def _label(row: int, low: float, high: float, height: int) -> str:
    return f"{high:.3g}" if row == 0 else f"{low:.3g}" if row == height - 1 else "loss" if row == height // 2 else ""


def rate_sections(search: RateSearch, name: str) -> list[Markup]:
    cut = [one for one in search.tried if search.first_loss is None or one.loss <= 2 * abs(search.first_loss)]
    lines = [
        Line("before", [(one.rate, one.loss) for one in cut]),
        Line("after", [(one.rate, one.smoothed) for one in search.tried]),
    ]
    marked = [("target", search.suggested)] if search.suggested is not None else []
    chart = lines_over(lines, "loss over the learning rate", lambda x: f"{x:.0e}", log_x=True, upright=marked)
    headline = render(
        "rates", title=rate_title(search), name=name, search=search, command=command_line(search.command), chart=chart,
        suggestions=_suggestions(search), own=", ".join(f"{rate:g}" for rate in search.own_rates),
    )  # fmt: skip
    machine = machine_section(search.machine, None)
    return [headline, machine] if machine is not None else [headline]

"""The page of a race: who arrived when, the ratios on one axis, the learning curves, and every run."""

from __future__ import annotations

import math

from markupsafe import Markup

from vivace.records.proof import Interval
from vivace.records.race import Race, RaceRun, Verdict
from vivace.report.charts.intervals import Axis, interval_chart
from vivace.report.charts.over import Line, lines_over
from vivace.report.common_sections import command_line, machine_section
from vivace.report.figures import plain
from vivace.report.race_view import about_clock, amount_in_words, conclusions, duration, run_line, speedup_in_words
from vivace.report.rendering import render

__all__ = ["race_sections", "race_title"]

_COLOURS = 6


def race_title(race: Race) -> str:
    decided = [result for result in race.results if result.verdict in (Verdict.FASTER, Verdict.SLOWER)]
    if len(race.results) == 2 and decided and decided[0].speedup is not None:
        return f"{decided[0].name}: {speedup_in_words(decided[0].speedup)} to {race.target}"
    return f"A race to {race.target}"


def race_sections(race: Race, name: str) -> list[Markup]:
    styles = {entry.name: f"entry-{number % _COLOURS}" for number, entry in enumerate(race.entries)}
    ratios = {r.name: _interval(r.speedup.value, r.speedup.low, r.speedup.high) for r in race.results if r.speedup}
    axis = Axis.over(ratios.values())
    rows = [
        {
            "name": result.name,
            "arrived": f"{result.arrived} of {result.of}",
            "time": amount_in_words(result.time_s, duration),
            "steps": amount_in_words(result.steps, plain),
            "samples": amount_in_words(result.samples, plain),
            "joules": amount_in_words(result.joules, plain),
            "speedup": speedup_in_words(result.speedup) if result.verdict is not None else "baseline",
            "chart": interval_chart([("last", ratios[result.name])], axis) if result.name in ratios else None,
        }
        for result in race.results
    ]
    headline = render(
        "race", title=race_title(race), name=name, race=race, rows=rows, styles=styles,
        has_joules=any(result.joules is not None for result in race.results),
        conclusions=[sentence for sentence, _ in conclusions(race)], clock=about_clock(race),
        commands=[(entry.name, command_line(entry.command), ", ".join(entry.practices)) for entry in race.entries],
        over_time=_chart(race, styles, by_steps=False), over_steps=_chart(race, styles, by_steps=True),
        lines=[run_line(run) for run in race.runs], examples=_examples(race),
    )  # fmt: skip
    machine = machine_section(race.machine, None)
    return [headline, machine] if machine is not None else [headline]


def _interval(value: float, low: float, high: float) -> Interval:
    """An end that the runs do not bound goes to the edge of the axis."""
    return Interval(median=value if math.isfinite(value) else 1.0, low=low, high=high)


def _chart(race: Race, styles: dict[str, str], by_steps: bool) -> Markup | None:
    lines = [Line(styles[run.entry], _points(run, by_steps)) for run in race.runs]
    target = float(race.target.split()[-1])
    label = f"the metric of every run over {'steps' if by_steps else 'time'}"
    return lines_over(lines, label, (lambda x: f"step {x:,.0f}") if by_steps else duration, target)


def _points(run: RaceRun, by_steps: bool) -> list[tuple[float, float]]:
    if by_steps:
        return [(float(point.steps), point.value) for point in run.curve if point.steps is not None]
    return [(point.time_s, point.value) for point in run.curve]


def _examples(race: Race) -> list[str]:
    return sorted(
        {f"{run.metric} ({run.source}): {run.example}" for run in race.runs[: len(race.entries)] if run.metric}
    )

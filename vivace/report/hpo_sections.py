"""The page of a hyper-parameter search: the answer and how sure it is, then history, importance, slices, all trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from vivace.records.hpo import Hpo, HpoParameter, HpoTrial
from vivace.report.charts.bars import Piece, bar
from vivace.report.charts.parallel import Axis, parallel
from vivace.report.charts.points import Point, points
from vivace.report.common_sections import command_line
from vivace.report.figures import duration, percent, plain
from vivace.report.hpo_view import answer_lines, best_trial, ended_trials, trial_line
from vivace.report.rendering import render

__all__ = ["hpo_sections", "hpo_title"]

_MOST_ROWS = 400


def hpo_title(record: Hpo) -> str:
    """What fresh seeds confirmed, where they did; else what the search saw."""
    best, confirmed = best_trial(record), record.confirmation
    if confirmed is not None and confirmed.best_mean is not None:
        mean = confirmed.best_mean
        return f"{record.metric} {plain(mean.mean)} ± {plain((mean.high - mean.low) / 2, 2)}"
    return f"{record.metric} {plain(best.metric)}" if best is not None else "No trial came to its end"


def hpo_sections(record: Hpo, name: str) -> list[Markup]:
    (lead, _), *more = answer_lines(record)
    return [
        render(
            "hpo_headline", title=hpo_title(record), name=name, record=record, lead=_sentence(lead),
            more=[_sentence(line) for line, _style in more], tiles=_tiles(record), command=command_line(record.command),
        ),
        render(
            "hpo_charts", record=record, history=_history(record), parallel=_parallel(record),
            importances=_importances(record), slices=_slices(record),
        ),
        render("hpo_trials", record=record, rows=_ordered(record)[:_MOST_ROWS], hidden=len(record.trials) - _MOST_ROWS),
    ]  # fmt: skip


def _tiles(record: Hpo) -> list[tuple[str, str, str]]:
    """(name, figure, remark)"""
    ended = ended_trials(record)
    kinds = ("pruned", "diverged", "crashed", "timeout", "no metric")
    states = [f"{n} {kind}" for kind in kinds if (n := sum(one.state == kind for one in ended))]
    tiles = [
        ("trials", str(len(ended)), ", ".join(states)),
        ("clock", duration(record.wall_s), f"budget {record.budget}" if record.budget else ""),
        ("commands", duration(record.trial_s), f"{record.workers} at a time"),
    ]
    if record.gpu_s:
        tiles.append(("GPU-hours", plain(record.gpu_s / 3600, 3), ""))
    if record.energy_j is not None:
        tiles.append(("energy", f"{plain(record.energy_j / 1e3, 3)} kJ", "of the GPUs"))
    return tiles


def _history(record: Hpo) -> Markup | None:
    shown = [one for one in ended_trials(record) if one.metric is not None]
    last = max((one.number for one in shown), default=0) or 1
    front: list[tuple[float, float]] = []
    better = min if record.direction == "min" else max
    for one in (one for one in shown if one.state == "complete"):
        value = better(front[-1][1], one.metric) if front else one.metric  # type: ignore[type-var]
        assert value is not None
        front.append((one.number / last, value))
    if front:
        front.append((1.0, front[-1][1]))
    below = [(n / last, f"trial {n}") for n in sorted({0, last // 2, last})]
    return points([_point(record, one, one.number / last) for one in shown], f"{record.metric} by trial", below, front)


@dataclass(frozen=True)
class _Slice:
    name: str
    chart: Markup


def _slices(record: Hpo) -> list[_Slice]:
    """The metric over each parameter, the most important first."""
    shown = [one for one in ended_trials(record) if one.metric is not None]
    ordered = sorted(record.parameters, key=lambda parameter: -(parameter.importance or 0.0))
    made = []
    for parameter in ordered:
        scale = _Scale(parameter, [one.values.get(parameter.name, "") for one in record.trials])
        dots = [
            _point(record, one, at) for one in shown if (at := scale.at(one.values.get(parameter.name))) is not None
        ]
        chart = points(dots, f"{record.metric} by {parameter.name}", scale.names())
        if chart is not None:
            made.append(_Slice(parameter.name, chart))
    return made


def _parallel(record: Hpo) -> Markup | None:
    shown = [one for one in ended_trials(record) if one.metric is not None and one.state == "complete"]
    metrics = [one.metric for one in shown if one.metric is not None]
    if len(record.parameters) < 2 or len(shown) < 2 or min(metrics) == max(metrics):
        return None
    scales = [_Scale(p, [one.values.get(p.name, "") for one in record.trials]) for p in record.parameters]
    low, high = min(metrics), max(metrics)
    lines = []
    for one in reversed(_ordered(record)):
        positions = [scale.at(one.values.get(scale.parameter.name)) for scale in scales]
        if one.state == "complete" and one.metric is not None and None not in positions:
            known = [at for at in positions if at is not None]
            style = "after" if one.number == record.best else "before"
            lines.append(([*known, (one.metric - low) / (high - low)], style))
    axes = [Axis(scale.parameter.name, scale.ends) for scale in scales]
    return parallel(
        [*axes, Axis(record.metric, (plain(low), plain(high)))], lines, "parameters and metric of each trial"
    )


@dataclass(frozen=True)
class _Bar:
    name: str
    figure: str
    chart: Markup


def _importances(record: Hpo) -> list[_Bar]:
    known = [(p.importance, p.name) for p in record.parameters if p.importance is not None]
    most = max((share for share, _name in known), default=0.0)
    return [
        _Bar(name, percent(share), bar([Piece("after", share, percent(share))], most))
        for share, name in sorted(known, reverse=True)
    ]


class _Scale:
    """Where a value lies on its parameter's axis: 0 to 1."""

    def __init__(self, parameter: HpoParameter, texts: Sequence[str]) -> None:
        self.parameter = parameter
        self._options = sorted(set(filter(None, texts))) if parameter.kind == "choice" else []
        numbers = [] if self._options else [float(text) for text in texts if text]
        self._low, self._high = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)

    def at(self, text: str | None) -> float | None:
        if not text:
            return None
        if self._options:
            return (self._options.index(text) + 0.5) / len(self._options)
        low, high, value = self._low, self._high, float(text)
        if high <= low:
            return 0.5
        if self.parameter.kind == "log" and low > 0:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    @property
    def ends(self) -> tuple[str, str]:
        if self._options:
            return self._options[0], self._options[-1]
        return f"{self._low:.3g}", f"{self._high:.3g}"

    def names(self) -> list[tuple[float, str]]:
        if self._options:
            return [((n + 0.5) / len(self._options), option) for n, option in enumerate(self._options)]
        logarithmic = self.parameter.kind == "log" and self._low > 0
        middle = math.sqrt(self._low * self._high) if logarithmic else (self._low + self._high) / 2
        return [(0.0, self.ends[0]), (0.5, f"{middle:.3g}"), (1.0, self.ends[1])]


def _point(record: Hpo, one: HpoTrial, x: float) -> Point:
    assert one.metric is not None
    style = "best" if one.number == record.best else "done" if one.state == "complete" else "pruned"
    return Point(x, one.metric, style, trial_line(record, one))


def _ordered(record: Hpo) -> list[HpoTrial]:
    """The best first; then those that ended early, then the rest."""
    sign = 1 if record.direction == "min" else -1

    def rank(one: HpoTrial) -> tuple[bool, bool, float, int]:
        return one.state != "complete", one.metric is None, sign * (one.metric or 0.0), one.number

    return sorted(record.trials, key=rank)


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."

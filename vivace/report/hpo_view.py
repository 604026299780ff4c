"""A hyper-parameter search in a terminal: while it runs, and its answer. Knows the ``Hpo`` record only.

The answer is to be printed with ``crop=False``: commands are not broken at the width of the terminal.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from vivace.records.base import last_line
from vivace.records.hpo import Confirmation, Hpo, HpoTrial
from vivace.report.figures import counted, duration, plain
from vivace.report.fitting import FittingTable
from vivace.report.to_copy import command_to_copy

__all__ = ["STATES_THAT_FAILED", "answer_lines", "best_trial", "eta_s", "hpo_live", "hpo_view", "trial_line"]

STATES_THAT_FAILED = ("crashed", "timeout", "no metric", "workers killed")
_LATEST = 6
_BEST = 5
_SAME = 1e-9  # of a figure: rounding


def best_trial(record: Hpo) -> HpoTrial | None:
    return next((one for one in record.trials if one.number == record.best), None)


def ended_trials(record: Hpo) -> list[HpoTrial]:
    return [one for one in record.trials if one.state not in ("running", "waiting")]


def eta_s(record: Hpo) -> float | None:
    """By what trials took so far, all workers busy, and by the budget; None until one has ended."""
    ended = ended_trials(record)
    took = [one.seconds for one in ended if one.seconds]
    if not took:
        return None
    found = []
    if record.asked_trials is not None:
        found.append(statistics.fmean(took) * max(0, record.asked_trials - len(ended)) / record.workers)
    if record.budget_used:
        found.append(record.wall_s * max(0.0, 1 / record.budget_used - 1))
    return min(found, default=None)


def hpo_live(record: Hpo) -> RenderableType:
    """The state of things in a few lines."""
    of = f" of {record.asked_trials}" if record.asked_trials is not None else ""
    head = Text(f"{len(ended_trials(record))}{of} trials", style="bold")
    head.append(_counts(record), style="dim")
    if left := eta_s(record):
        head.append(f" · about {duration(left)} left", style="dim")
    if record.budget_used is not None:
        head.append(f" · {100 * record.budget_used:.0f} % of {record.budget}", style="dim")
    parts: list[RenderableType] = [head]
    if (best := best_trial(record)) is not None:
        parts.append(Text(f"best so far: {record.metric} {plain(best.metric)} ({_values(best)})", style="green"))
    running = [one for one in record.trials if one.state == "running"]
    if shown := [*sorted(ended_trials(record), key=_ended_at)[-_LATEST:], *running]:
        parts.append(_table(record, shown))
    if (confirmed := record.confirmation) is not None:
        done = len(confirmed.best.metric) + len(confirmed.baseline.metric)
        parts.append(Text(f"confirmation: {done} of {2 * confirmed.seeds} runs", style="dim"))
    return Group(*parts)


def trial_line(record: Hpo, one: HpoTrial) -> str:
    """For a log: a trial that has ended."""
    figure = f"{record.metric} {plain(one.metric)}" if one.metric is not None else last_line(one.reason)
    best = " (best so far)" if one.number == record.best else ""
    return f"trial {one.number}: {one.state}, {figure}, {_values(one)}, {duration(one.seconds)}{best}"


def hpo_view(record: Hpo) -> RenderableType:
    done = sorted((one for one in record.trials if one.state == "complete"), key=lambda one: _rank(record, one))
    parts: list[RenderableType] = [Text()]
    if done:
        parts += [Text(f"The best of {counted(len(ended_trials(record)), 'trial')}{_counts(record)}:", style="bold")]
        parts += [_table(record, done[:_BEST]), Text()]
    parts += [Text(line, style=style) for line, style in answer_lines(record)]
    parts += [Text(line, style="dim") for line in _facts(record)]
    if record.best_command:
        parts += [Text(), *command_to_copy(record.best_command, "bold")]
    return Group(*parts)


def answer_lines(record: Hpo) -> list[tuple[str, str]]:
    """What the study found and how sure that is, as (sentence, style)."""
    best, confirmed = best_trial(record), record.confirmation
    lines = [(f"The study is not complete: {record.ended}.", "yellow")] if not record.complete and record.ended else []
    if best is None:
        return [*lines, ("No trial came to its end: there is no best one.", "bold yellow")]
    if confirmed is None or confirmed.best_mean is None:
        seen = f"best seen: {record.metric} {plain(best.metric)} (trial {best.number}), not confirmed"
        return [*lines, (seen, "bold yellow"), (_not_confirmed(record), "dim")]
    return [*lines, *_confirmed_lines(record, confirmed)]


def _not_confirmed(record: Hpo) -> str:
    tried = counted(len(ended_trials(record)), "trial")
    return f"One run each: the best of {tried} is in part the luckiest. --confirm-seeds 5 tells how good it is."


def _confirmed_lines(record: Hpo, confirmed: Confirmation) -> list[tuple[str, str]]:
    mean, compared = confirmed.best_mean, confirmed.compared
    assert mean is not None
    own = "the middle of the space" if confirmed.baseline_is_middle else "your defaults"
    lines = []
    if compared is not None:
        lines.append(_verdict(record, confirmed, own))
    seen = f"{record.metric} {plain(mean.mean)} (95 %: {plain(mean.low)} to {plain(mean.high)})"
    lines.append((f"confirmed over {counted(mean.pairs, 'seed')}: {seen}", "bold"))
    if confirmed.baseline.metric:
        figure = plain(statistics.fmean(confirmed.baseline.metric))
        lines.append((f"{own} ({_pairs(confirmed.baseline.values)}): {figure}", ""))
    lines.append((_flattery(record, confirmed), "dim"))
    if confirmed.failed_runs:
        failed = counted(confirmed.failed_runs, "run")
        lines.append((f"{failed} of the confirmation did not end well and are left out.", "yellow"))
    if len(confirmed.best.metric) > 1 and len(set(confirmed.best.metric)) == 1:
        lines.append(("All seeds gave the same figure: give the command its seed as {seed}.", "yellow"))
    return lines


def _verdict(record: Hpo, confirmed: Confirmation, own: str) -> tuple[str, str]:
    compared = confirmed.compared
    assert compared is not None
    gain, half = (-compared.mean if record.direction == "min" else compared.mean), (compared.high - compared.low) / 2
    base = abs(statistics.fmean(confirmed.baseline.metric))
    share = (
        f" ({plain(100 * gain / base, 2)} % ± {plain(100 * half / base, 2)})"
        if base > 0 and math.isfinite(base)
        else ""
    )
    figure = f"{plain(abs(gain))} ± {plain(half)}"
    if gain - half > 0:
        return f"better than {own} by {figure}{share}", "bold green"
    if gain + half < 0:
        return f"worse than {own} by {figure}: keep those", "bold yellow"
    return f"not shown to be better than {own}: {plain(gain)} ± {plain(half)}{share}", "bold yellow"


def _flattery(record: Hpo, confirmed: Confirmation) -> str:
    assert confirmed.best_mean is not None
    seen, mean = confirmed.best_seen, confirmed.best_mean.mean
    gap = mean - seen if record.direction == "min" else seen - mean
    better = gap > _SAME * max(abs(seen), abs(mean))
    tried = counted(len(ended_trials(record)), "trial")
    if not better:
        return f"The search saw {plain(seen)} of it; fresh seeds are no worse."
    return f"The search saw {plain(seen)} of it: the best of {tried} flatters itself by {plain(gap)}."


def _facts(record: Hpo) -> list[str]:
    spent = f"{duration(record.wall_s)} of the clock, {duration(record.trial_s)} of commands"
    spent += f", {record.gpu_s / 3600:.3g} GPU-hours" if record.gpu_s else ""
    spent += f", {record.energy_j / 1e3:.3g} kJ" if record.energy_j is not None else ""
    lines = [f"spent: {spent}" + (f"; budget {record.budget}" if record.budget else "")]
    weights = [(p.importance, p.name) for p in record.parameters if p.importance is not None]
    if weights:
        lines.append("importance: " + ", ".join(f"{name} {100 * share:.0f} %" for share, name in sorted(weights)[::-1]))
    if record.given_back:
        lines.append(f"{counted(record.given_back, 'trial')} of workers that were killed or stopped ran again")
    return [*lines, *record.notes]


def _counts(record: Hpo) -> str:
    states = [one.state for one in record.trials]
    found = {
        "running": states.count("running"), "pruned": states.count("pruned"), "diverged": states.count("diverged"),
        "failed": sum(state in STATES_THAT_FAILED for state in states),
    }  # fmt: skip
    return "".join(f", {count} {word}" for word, count in found.items() if count)


def _table(record: Hpo, shown: Sequence[HpoTrial]) -> FittingTable:
    table = FittingTable(box=None, pad_edge=False, header_style="dim")
    names = [parameter.name for parameter in record.parameters]
    for name in ("trial", *names, record.metric, "took", ""):
        table.add_column(escape(name), justify="right" if name else "left")
    for one in shown:
        state = "" if one.state == "complete" else one.state
        table.add_row(
            str(one.number), *(escape(_short(one.values.get(name, ""))) for name in names),
            plain(one.metric) if one.metric is not None else "",
            duration(one.seconds) if one.seconds is not None else "", escape(_remark(record, one, state)),
            style="green" if one.number == record.best else "yellow" if one.state in STATES_THAT_FAILED else "",
        )  # fmt: skip
    return table


def _remark(record: Hpo, one: HpoTrial, state: str) -> str:
    why = last_line(one.reason) if one.state in STATES_THAT_FAILED else ""
    return " ".join(filter(None, ["best" if one.number == record.best else state, why]))


def _rank(record: Hpo, one: HpoTrial) -> tuple[float, int]:
    value = one.metric if one.metric is not None else math.inf
    return (value if record.direction == "min" else -value), one.number


def _ended_at(one: HpoTrial) -> float:
    return (one.started_at or 0.0) + (one.seconds or 0.0)


def _values(one: HpoTrial) -> str:
    return _pairs(one.values)


def _pairs(values: dict[str, str]) -> str:
    return ", ".join(f"{name}={_short(text)}" for name, text in values.items())


def _short(text: str) -> str:
    """A number with four figures; the command has all of them."""
    try:
        return text if len(text) < 8 else f"{float(text):.4g}"
    except ValueError:
        return text

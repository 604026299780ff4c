"""A race in a terminal: what each entry took to the target, and how much sooner it came than the baseline.

To be printed with ``crop=False``. Called by ``vivace.cli``; knows records only.
"""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.text import Text

from vivace.records.race import Amount, Clock, EntryResult, Outcome, Race, RaceRun, Verdict
from vivace.report.figures import counted, plain, ratio
from vivace.report.figures import duration as long_duration
from vivace.report.fitting import FittingTable

__all__ = ["about_clock", "amount_in_words", "conclusions", "duration", "race_view", "run_line", "speedup_in_words"]

_SHORT_S = 10.0
_STYLES = {Verdict.FASTER: "green", Verdict.SLOWER: "red", Verdict.UNDECIDED: "yellow"}


def race_view(race: Race) -> RenderableType:
    has_joules = any(result.joules is not None for result in race.results)
    table = FittingTable(box=None, pad_edge=False, header_style="dim")
    columns = [
        "entry",
        "arrived",
        "time to target",
        "steps",
        "samples",
        *(["joules"] if has_joules else []),
        "sooner",
        "",
    ]
    for column in columns:
        table.add_column(column, justify="left" if column in ("entry", "") else "right")
    for result in race.results:
        table.add_row(
            Text(result.name), f"{result.arrived} of {result.of}", amount_in_words(result.time_s, duration),
            *(amount_in_words(figure, plain) for figure in _counted(result, has_joules)),
            speedup_in_words(result.speedup), _remark(result),
        )  # fmt: skip
    parts: list[RenderableType] = [Text(), table, Text()]
    parts += [Text(line, style=style) for line, style in conclusions(race)]
    parts += [Text(about_clock(race), style="dim"), Text(f"Intervals of 95 %: {race.estimator}.", style="dim")]
    parts += [Text(f"· {note}", style="yellow") for note in race.notes]
    return Group(*parts)


def duration(seconds: float) -> str:
    """
    >>> duration(0.2345), duration(95)
    ('0.234 s', '1 min 35 s')
    """
    return f"{plain(seconds, 3)} s" if seconds < _SHORT_S else long_duration(seconds)


def _counted(result: EntryResult, has_joules: bool) -> list[Amount | None]:
    return [result.steps, result.samples, *([result.joules] if has_joules else [])]


def _remark(result: EntryResult) -> Text:
    if result.verdict is None:
        return Text("baseline", style="dim")
    return Text(str(result.verdict), style=_STYLES[result.verdict])


def amount_in_words(amount: Amount | None, unit: object) -> str:
    """``unit``: ``duration`` or ``plain``."""
    assert callable(unit)
    if amount is None:
        return "–"
    value = "never (half of the runs)" if math.isinf(amount.value) else unit(_rounded(amount.value))
    bounded = amount.low > 0 or math.isfinite(amount.high)
    return f"{value} ({unit(_rounded(amount.low))} to {unit(_rounded(amount.high))})" if bounded else value


def _rounded(value: float) -> float | int:
    return round(value) if math.isfinite(value) and value >= 1000 else value


def speedup_in_words(amount: Amount | None) -> str:
    if amount is None:
        return "–"
    value = ratio(amount.value) if math.isfinite(amount.value) else "?"
    if amount.low <= 0 and math.isinf(amount.high):
        return f"{value} (not bounded)"
    return f"{value} ({plain(amount.low, 3)} to {plain(amount.high, 3)})"


def conclusions(race: Race) -> list[tuple[str, str]]:
    """(sentence, style) for each entry but the baseline."""
    baseline, said = race.entries[0].name, []
    for result in race.results:
        if result.verdict is None:
            if result.name != baseline:
                said.append(
                    (f"No run of {result.name} or of {baseline} reached {race.target}: no ratio.", "bold yellow")
                )
            continue
        sentence = {
            Verdict.FASTER: f"{result.name} reaches {race.target} sooner than {baseline}.",
            Verdict.SLOWER: f"{result.name} reaches {race.target} later than {baseline}.",
            Verdict.UNDECIDED: f"Whether {result.name} reaches {race.target} sooner than {baseline} is not decided "
            f"after {counted(result.of, 'seed')}.",
        }[result.verdict]
        said.append((sentence, f"bold {_STYLES[result.verdict]}"))
    if race.ended_early:
        said.append(
            (f"The answer was clear after {len({run.seed for run in race.runs})} of {race.seeds} seeds.", "dim")
        )
    return said


def about_clock(race: Race) -> str:
    if race.clock is Clock.WALL:
        return "Clock: everything from the start of the command."
    return "Clock: training and evaluation, without start-up and compilation (as in MLPerf; --clock wall counts all)."


def run_line(run: RaceRun) -> str:
    """A line when a run ends."""
    value = f", {run.metric} {plain(run.best)}" if run.best is not None else ""
    what = {
        Outcome.ARRIVED: "arrived after",
        Outcome.LIMIT: "did not arrive within the limit, after",
        Outcome.ENDED: "ended before the target, after",
        Outcome.DIVERGED: "diverged, after",
        Outcome.CRASHED: "failed, after",
    }[run.outcome]
    steps = f", {counted(run.steps, 'step')}" if run.steps is not None else ""
    return f"seed {run.seed}  {run.entry}: {what} {duration(run.time_s)}{steps}{value}"

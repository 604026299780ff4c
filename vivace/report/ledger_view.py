"""The ledger of a step as a person reads it in a terminal: one sum, its rows, and what to do about the largest."""

from __future__ import annotations

import os

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from vivace.records.ledger import CAUSES, Cause, Ledger, Line, Place, Workers
from vivace.report.fitting import FittingTable
from vivace.report.ledger_words import GROUPS, in_words, largest, shown_rows, sum_in_words

__all__ = ["ledger_view", "lines_view"]

_BAR = 24
_LINES = 25
_WORKER_LINES = 5


def ledger_view(ledger: Ledger) -> RenderableType:
    parts: list[RenderableType] = [Text(), Text(sum_in_words(ledger), style="bold"), _table(ledger)]
    if ledger.why_unexplained and ledger.unexplained_ms > 0.02 * ledger.step_ms:
        parts.append(Text(f"not explained: {ledger.why_unexplained}.", style="yellow"))
    for row in largest(ledger):
        parts.append(Text(f"{row.ms:.1f} ms  {in_words(row)}", style="yellow"))
        if row.to_do:
            parts.append(Text(f"  {row.to_do}"))
    if ledger.workers is not None:
        parts += [Text(), *_workers(ledger.workers)]
    parts += [
        Text(
            f"another thread is in {os.path.basename(t.file)}:{t.line} `{t.code}` in {t.share:.0%} of the looks", "dim"
        )
        for t in ledger.threads
    ]
    parts += [Text(f"beside the steps: {row.name}, {row.ms:.1f} ms per step", style="dim") for row in ledger.outside]
    parts.append(Text(_how(ledger), style="dim"))
    return Group(*parts)


def _table(ledger: Ledger) -> Table:
    table = FittingTable(box=None, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("where the step goes")
    table.add_column("ms", justify="right")
    table.add_column("share", justify="right")
    table.add_column("")
    colours = {cause: colour for _, colour, causes in GROUPS for cause in causes}
    start = 0.0
    for row in shown_rows(ledger):
        where = f"  {_place(row.where)}" if row.where else ""
        bar = _bar(start, row.ms, ledger.step_ms, colours[row.cause])
        table.add_row(escape(f"{row.name}{where}"), f"{row.ms:.2f}", f"{row.ms / ledger.step_ms:.1%}", bar)
        start += row.ms
    return table


def _bar(start_ms: float, ms: float, step_ms: float, colour: str) -> Text:
    """A piece of the whole, at its place: rows read as a waterfall."""
    first = round(_BAR * start_ms / step_ms)
    last = max(first + 1, round(_BAR * (start_ms + ms) / step_ms))
    return Text(" " * min(first, _BAR - 1)).append("█" * (min(last, _BAR) - min(first, _BAR - 1)), style=colour)


def _place(place: Place) -> str:
    lines = f"{place.line}" if place.first_line >= place.line else f"{place.first_line}-{place.line}"
    return f"{os.path.basename(place.file)}:{lines}"


def _workers(workers: Workers) -> list[RenderableType]:
    table = FittingTable(box=None, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column(f"a batch in a worker, {workers.batch_ms:.1f} ms; workers are busy {workers.busy:.0%}")
    for name in ("ms", "share"):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in workers.lines[:_WORKER_LINES]:
        does = "waits" if row.waiting_ms > 0.5 * row.ms else "computes"
        table.add_row(escape(in_words(row)), f"{row.ms:.2f}", f"{row.ms / workers.batch_ms:.0%}", does)
    return [table]


def _how(ledger: Ledger) -> str:
    sampling = ledger.sampling
    if sampling is None:
        return ""
    thread = f"; from a thread, less exact ({sampling.why_no_timer})" if sampling.sampler == "thread" else ""
    return (
        f"lines: {sampling.samples} samples in {sampling.steps} other steps, which cost "
        f"{sampling.own_ms / (sampling.step_ms or 1):.1%} of them{thread}"
    )


def lines_view(ledger: Ledger) -> RenderableType:
    """``check --lines``: lines of the user's code by all the time that they cost."""
    table = FittingTable(box=None, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("line")
    table.add_column("ms/step", justify="right")
    table.add_column("share", justify="right")
    table.add_column("spent on")
    table.add_column("code")
    for line in ledger.lines[:_LINES]:
        table.add_row(
            escape(_place(Place(file=line.file, line=line.line, first_line=line.first_line))),
            f"{line.ms:.2f}", f"{line.ms / ledger.step_ms:.1%}", escape(_spent(line)), escape(line.code),
        )  # fmt: skip
    return Group(Text(), table) if ledger.lines else Text("no line of the script was seen", style="dim")


def _spent(line: Line) -> str:
    """The two largest causes."""
    ranked = sorted(line.by_cause_ms.items(), key=lambda item: -item[1])
    names = [CAUSES[cause] for cause, ms in ranked if ms > 0.1 * line.ms][:2]
    via = f" → {line.via}" if line.via and ranked and ranked[0][0] in (Cause.HOST, Cause.LOGGING, Cause.SAVING) else ""
    return ", ".join(names) + via

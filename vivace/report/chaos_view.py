"""The record of a ``vivace chaos`` as a person reads it."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from vivace.records.chaos import Chaos, JobLife
from vivace.report.figures import counted

__all__ = ["chaos_view"]

_FAULTS = {
    "kill": "SIGKILL",
    "stop": "SIGSTOP",
    "slow": "sleeps before each step",
    "nan": "gradients that are not numbers",
    "disk-full": "a full disk",
    "bit-rot": "SIGKILL, then a flipped bit",
}
_OUTCOMES = {
    "survived": ("the job noticed, and went on to its end", "green"),
    "resumed": ("it ended, and went on when it was started again", "green"),
    "ended": ("it ended", "yellow"),
    "hung": ("it hung", "red"),
    "unnoticed": ("nobody noticed", "red"),
    "restart failed": ("it ended, and could not go on when it was started again", "red"),
    "not injected": ("the fault did not come", "yellow"),
}


def chaos_view(record: Chaos) -> Group:
    table = Table(box=None, show_header=False, pad_edge=False)
    for label, text in _rows(record):
        table.add_row(Text(label, style="bold"), text)
    notes = [Text(f"note: {note}", style="dim") for note in record.notes]
    return Group(table, *notes, Text(f"record: {record.folder}", style="dim"))


def _rows(record: Chaos) -> list[tuple[str, Text]]:
    words, colour = _OUTCOMES[record.outcome]
    rows = [("fault", Text(_fault(record))), ("outcome", Text(words, style=colour))]
    if record.injected:
        rows.append(("noticed", Text(_noticed(record))))
    for number, life in enumerate(record.lives):
        rows.append(("first start" if number == 0 else "started again", Text(_life(life))))
    if record.steps_lost is not None:
        rows.append(("steps lost", Text(f"{record.steps_lost} (from {record.steps_lost_from})")))
    if record.straggler is not None:
        one = record.straggler
        others = f"the others at most {one.others_late_ms:,.0f} ms"
        rows.append(("straggler", Text(f"rank {one.rank}: {one.late_ms:,.0f} ms behind the first rank ({others})")))
    return rows


def _fault(record: Chaos) -> str:
    when = (
        f"after step {record.injected_step}" if record.injected_step is not None else f"asked after step {record.step}"
    )
    where = f" ({record.target})" if record.target else ""
    return f"{record.fault}: {_FAULTS[record.fault]}, rank {record.rank}, {when}{where}"


def _noticed(record: Chaos) -> str:
    if record.detected_s is None:
        return "by nobody"
    line = f": {record.detected_line}" if record.detected_line else ""
    return f"after {record.detected_s:.1f} s, by {record.detected_by}{line}"


def _life(life: JobLife) -> str:
    end = "ended by vivace" if life.exit_code is None else f"exit code {life.exit_code}"
    since = f", from step {life.resumed_step}" if life.resumed_step is not None else ""
    said = f"; it said: {life.said}" if life.said else ""
    return f"{counted(life.steps, 'step')}{since}, {life.seconds:.1f} s, {end}{said}"

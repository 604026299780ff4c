"""What measure and check say where nothing could be measured: why, the hint, the command's own error, the logs."""

from __future__ import annotations

from json import dumps
from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from vivace.errors import ExitCode
from vivace.measure.measuring import Measured
from vivace.measure.own_error import own_error
from vivace.preemption import EXIT_INTERRUPTED

__all__ = ["end_with_nothing"]

_LAST_LINES = 12  # a short traceback


def end_with_nothing(measured: Measured, console: Console, json: bool, quiet: bool) -> NoReturn:
    """``quiet``: the user has not seen the command's output, so its last lines are shown here."""
    if json:
        facts = {"status": "nothing", "reason": measured.message, "hint": measured.hint, "folder": str(measured.folder)}
        print(dumps(facts))
    console.print(f"[bold yellow]vivace:[/] {escape(measured.message or '')}", highlight=False)
    last = own_error(measured.folder, _LAST_LINES) if quiet else ""
    for line in last.splitlines():
        console.print(f"  | {line}", highlight=False, markup=False, soft_wrap=True)
    if measured.hint:
        console.print(f"[dim]  hint: {escape(measured.hint)}[/]", highlight=False)
    console.print(f"[dim]  its output is kept in {escape(str(measured.folder))}[/]", highlight=False, soft_wrap=True)
    code = measured.outcome.exit_code
    keeps_its_own = measured.outcome.interrupted or code == EXIT_INTERRUPTED  # a job script requeues for that one
    raise typer.Exit(code if keeps_its_own else ExitCode.NOTHING)

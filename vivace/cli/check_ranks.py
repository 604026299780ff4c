"""``vivace check --ranks N -- COMMAND``: would it scale? Called by ``cli/check.py``."""

from __future__ import annotations

from typing import NoReturn

import typer

from vivace.cli.console import make_console
from vivace.cli.showing import print_record, shown
from vivace.errors import ExitCode
from vivace.measure.measuring import Request
from vivace.records.equality import EqualityVerdict
from vivace.report.scale_check_view import scale_check_view
from vivace.tune.ranks.checking import RECORD, check_ranks

__all__ = ["check_and_show"]


def check_and_show(request: Request, mode: str, ranks: int, cluster: str | None, json: bool, quiet: bool) -> NoReturn:
    """Ends with 1 where the ranks train otherwise than one process."""
    console = make_console(stderr=True)
    try:
        with shown(console, json, quiet) as (sink, progress, _say):
            record, folder = check_ranks(request, mode, ranks, cluster, sink, progress)
    except KeyboardInterrupt:
        console.print("[bold yellow]vivace:[/] interrupted", highlight=False)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if json:
        print_record(record)
    else:
        out = make_console(highlight=False)
        out.print(scale_check_view(record), crop=False)
        out.print(f"\n[dim]record: {folder / RECORD}[/]", soft_wrap=True)
    raise typer.Exit(ExitCode.NEGATIVE if record.equality.verdict is EqualityVerdict.DIFFERENT else ExitCode.DONE)

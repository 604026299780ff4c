"""The ``vivace`` command: one module per sub-command; here they are put together and errors become sentences."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from vivace import __version__
from vivace.cli.hardware import hardware
from vivace.cli.logs import logs
from vivace.cli.measure import measure
from vivace.cli.queue import cancel, queue
from vivace.cli.status import status
from vivace.cli.submit import submit
from vivace.errors import UserError

__all__ = ["app", "main"]

EXIT_USER_ERROR = 2

app = typer.Typer(
    name="vivace",
    help="Makes PyTorch training fast and proves it, from a laptop to a Slurm supercomputer.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"vivace {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """vivace: measure → check → tune → plan → launch."""


app.command("measure")(measure)
app.command("hardware")(hardware)
app.command("submit")(submit)
app.command("queue")(queue)
app.command("logs")(logs)
app.command("status")(status)
app.command("cancel")(cancel)


def main() -> None:
    """Entry point: a user's mistake is one sentence and a hint on stderr, and exit code 2; never a traceback."""
    try:
        app()
    except UserError as error:
        console = Console(stderr=True, highlight=False)
        console.print(f"[bold red]vivace:[/] {escape(error.message)}")
        if error.hint:
            console.print(f"[dim]  hint: {escape(error.hint)}[/]")
        sys.exit(EXIT_USER_ERROR)
    except BrokenPipeError:  # `vivace … | head`
        sys.exit(0)

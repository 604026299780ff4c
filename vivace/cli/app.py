"""The ``vivace`` command: one module per sub-command; here they are put together and errors become sentences."""

from __future__ import annotations

import errno
import importlib
import io
import os
import select
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.markup import escape

from vivace import __version__
from vivace.cli.command import EXIT_CODES, TAKES_A_COMMAND
from vivace.cli.console import make_console
from vivace.errors import ExitCode, UserError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["application", "main"]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # a full disk can meet any file that we write
_STDERR = 2

# Each sub-command, and where it is. Only the one that is asked for is imported: together they take half a second.
_COMMANDS = {
    "measure": "measure:measure", "check": "check:check", "run": "run:run", "tune": "tune:tune",
    "practices": "practices:practices", "hardware": "hardware:hardware_app", "plan": "plan:plan_app",
    "train": "train:train", "recipe": "recipe:recipe_app",
    "submit": "submit:submit", "queue": "queue:queue", "logs": "logs:logs", "status": "status:status",
    "cancel": "queue:cancel", "report": "report:report", "find": "find:find_app", "race": "race:race",
    "score": "score:score", "hpo": "hpo:hpo", "chaos": "chaos:chaos", "explain": "explain:explain",
    "lab": "lab:lab_app",
}  # fmt: skip
_START_A_COMMAND = ("measure", "check", "run", "tune", "submit", "race", "hpo", "chaos")


def application(words: Sequence[str] = ()) -> typer.Typer:
    """The application with the sub-command that ``words`` begin with; with all of them if it is none (``--help``)."""
    app = typer.Typer(
        name="vivace",
        help="Makes PyTorch training fast and proves it, from a laptop to a Slurm supercomputer.",
        no_args_is_help=True,
        epilog=EXIT_CODES,
        add_completion=False,
        rich_markup_mode="markdown" if sys.stderr.isatty() or _asks_for_help(words) else None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for name in [words[0]] if words and words[0] in _COMMANDS else _COMMANDS:
        module, attribute = _COMMANDS[name].split(":")
        command = getattr(importlib.import_module(f"vivace.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            starts = name in _START_A_COMMAND
            app.command(
                name, context_settings=TAKES_A_COMMAND if starts else None, epilog=EXIT_CODES if starts else None
            )(command)
    return app


def _asks_for_help(words: Sequence[str]) -> bool:
    """Usage errors that are piped are plain lines: typer would wrap them into a box of 80 columns."""
    own = words[: words.index("--")] if "--" in words else words
    return "--help" in own or len(words) < 2


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"vivace {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """vivace: measure → check → tune → plan → launch."""


class _PatientFile(io.FileIO):
    """A file whose reader may go away (``vivace … | head -1``): what comes after is dropped, without an error.

    Caught here and not around ``app()``: rich and typer turn a broken pipe into exit code 1 before we see it, and the
    command that is measured must go on, and keep its exit code. For the same reason a full disk under stderr (a job's
    log) is no error. Under stdout it is one: there lies what was asked for.
    """

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]
        left = memoryview(data).cast("B")
        size = left.nbytes
        while left.nbytes:  # a signal may cut a write short, and an unbuffered stream does not look
            try:
                written = super().write(left)
                if written is None:  # someone made the pipe non-blocking, and it is full
                    select.select([], [self], [])
                left = left[written or 0 :]
            except BrokenPipeError:
                break
            except OSError as error:
                if self.fileno() != _STDERR or error.errno not in _NO_ROOM:
                    raise
                break
        return size


def _patient(stream: TextIO | None) -> TextIO:
    """The same stream, which outlives its reader and writes ``?`` for what its encoding lacks. It holds back what the
    stream itself would, and nothing more: with PYTHONUNBUFFERED (set in job scripts) each word is out at once."""
    if stream is None:  # closed by whoever started us: `>&-`
        return open(os.devnull, "w", encoding="utf-8")
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # replaced by something that is no file
        return stream
    stream.flush()
    at_once = bool(getattr(stream, "write_through", False))
    file = _PatientFile(number, "w", closefd=False)
    raw = file if at_once else io.BufferedWriter(file)
    errors = "replace" if stream.errors in (None, "strict") else stream.errors
    return io.TextIOWrapper(
        raw, stream.encoding, errors, line_buffering=bool(stream.line_buffering), write_through=at_once
    )


def _check_working_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError(
            "the working folder no longer exists: it was deleted", hint="cd to a folder that exists"
        ) from None


def main() -> None:
    """Entry point: a user's mistake is one sentence and a hint on stderr, and an ``ExitCode``; never a traceback."""
    sys.stdout, sys.stderr = _patient(sys.stdout), _patient(sys.stderr)
    try:
        _check_working_folder()
        application(sys.argv[1:])()
    except UserError as error:
        console = make_console(stderr=True, highlight=False)
        console.print(f"[bold red]vivace:[/] {escape(error.message)}")
        if error.hint:
            console.print(f"[dim]  hint: {escape(error.hint)}[/]", soft_wrap=True)  # it may be a command
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        where = f" ({error.filename})" if error.filename else ""
        sys.stderr.write(f"vivace: {error.strerror}{where}; records written so far are kept\n")
        sys.exit(ExitCode.NOTHING)

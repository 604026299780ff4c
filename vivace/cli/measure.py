"""``vivace measure -- COMMAND``: parse, call ``vivace.measure``, print."""

from __future__ import annotations

import codecs
import sys
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from vivace.errors import UserError
from vivace.measure.command import Sink, passthrough
from vivace.measure.measuring import Measured, Request
from vivace.measure.measuring import measure as run_measurement
from vivace.report.terminal import measurement_view

__all__ = ["measure"]

_LONGEST_LINE = 1 << 20  # characters; a longer line is shown in pieces, so that the command never waits for us


def measure(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="The training command, after `--`.", show_default=False),
    ] = None,
    steps: Annotated[int, typer.Option(help="Optimizer steps to time.")] = 50,
    warmup: Annotated[
        int | None, typer.Option(help="Steps to leave out first. Default: until the loop has settled.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Stop the command after so many seconds.")] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", envvar="VIVACE_RUNS", help="Folder for the run's own folder.")
    ] = Path("runs"),
    name: Annotated[str | None, typer.Option(help="Name of the run. Default: the script's.")] = None,
    profile: Annotated[bool, typer.Option(help="A short profiler window after the timed one.")] = True,
    flops: Annotated[bool, typer.Option(help="Count the FLOPs of one step, for the MFU.")] = True,
    json: Annotated[
        bool, typer.Option("--json", help="Print the record; the command's output goes to stderr.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not show the command's output (it is in the logs).")
    ] = False,
) -> None:
    """Say where the time, memory and energy of a training command go, step by step. The script is not edited.

    The command runs as it is, for the warm-up, the timed steps and a short profiler window; then it is ended. Its exit
    code is kept, also when it fails. Without a command, the example that ships with vivace is measured.

    Examples:

        vivace measure -- python train.py -b 256

        vivace measure --steps 100 -- torchrun --nproc-per-node 4 train.py

        vivace measure --json -- bash run.sh > measurement.json
    """
    if timeout is not None and not timeout > 0:  # written so that nan is refused too
        raise UserError(f"--timeout must be above 0 seconds, not {timeout:g}")
    request = Request(
        command=tuple(command or _embedded_example()),
        steps=steps,
        warmup_steps=warmup,
        profile=profile,
        flops=flops,
        timeout_s=timeout,
        output=output,
        name=name,
    )
    console = Console(stderr=True)
    if not command and not json:
        console.print("No command given: measuring the example that ships with vivace (a small image classifier).\n")
    measured = _run(request, console, json, quiet)
    if measured.measurement or measured.message:  # else another task of the same srun shows it
        _show(measured, console, json)
    raise typer.Exit(measured.outcome.exit_code)


def _embedded_example() -> list[str]:
    return [sys.executable, "-m", "vivace.demo.classifier"]


def _run(request: Request, console: Console, json: bool, quiet: bool) -> Measured:
    """With a progress bar on a terminal; elsewhere the command's output passes through untouched."""
    if not (console.is_terminal and sys.stderr.isatty()):  # rich alone believes FORCE_COLOR
        sink: Sink = _nowhere if quiet else passthrough(to_stdout=not json)
        return run_measurement(request, sink, lambda _: None)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[steps]}"),
        TimeElapsedColumn(),
    )
    screen = _Screen(console, stdout_too=json or sys.stdout.isatty())
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("starting the command", total=None, steps="")

        def progress(seen: dict[str, Any]) -> None:
            of = seen["of"]
            bar.update(
                task,
                description=seen["stage"],
                total=of,
                completed=seen["done"] if of else 0,
                steps=f"step {seen['steps']}",
            )

        try:
            return run_measurement(request, _nowhere if quiet else screen.show, progress)
        finally:
            screen.finish()


def _nowhere(_stream: str, _data: bytes) -> None:
    """A sink for ``--quiet``."""


class _Screen:
    """A sink that shows the command's output above the progress bar; stdout only when it goes to the screen too."""

    def __init__(self, console: Console, stdout_too: bool) -> None:
        self._console = console
        self._streams = {name: _Lines() for name in (("stdout", "stderr") if stdout_too else ("stderr",))}
        self._pass_on = passthrough(to_stdout=True)

    def show(self, stream: str, data: bytes) -> None:
        if stream in self._streams:
            self._print(self._streams[stream].feed(data))
        else:
            self._pass_on(stream, data)

    def finish(self) -> None:
        """Show what came without a newline at its end."""
        for lines in self._streams.values():
            self._print(lines.finish())

    def _print(self, lines: list[Text]) -> None:
        if lines:
            self._console.print(Text("\n").join(lines), soft_wrap=True)


class _Lines:
    """Whole lines from the bytes of one stream, which may be cut anywhere: in a character, a line or a colour.

    A line that was written over with ``\\r`` (a progress bar) is shown once, as it was at its end.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._colours = AnsiDecoder()
        self._rest = ""

    def feed(self, data: bytes) -> list[Text]:
        *lines, rest = (self._rest + self._decoder.decode(data)).split("\n")
        self._rest = _last_state(rest) + "\r" * rest.endswith("\r")  # a script may write only \r, for hours
        if len(self._rest) > _LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], ""
        return self._coloured(lines)

    def finish(self) -> list[Text]:
        rest, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        return self._coloured([rest] if rest.strip() else [])

    def _coloured(self, lines: list[str]) -> list[Text]:
        return [self._colours.decode_line(_last_state(line)) for line in lines]


def _last_state(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2]


def _show(measured: Measured, console: Console, json: bool) -> None:
    if measured.measurement is None and json:
        print(dumps({"status": "nothing", "reason": measured.message, "hint": measured.hint}))
    if measured.measurement is None:
        console.print(f"[bold yellow]vivace:[/] {escape(measured.message or '')}", highlight=False)
        if measured.hint:
            console.print(f"[dim]  hint: {escape(measured.hint)}[/]", highlight=False)
        console.print(f"[dim]  its output is kept in {escape(str(measured.folder))}[/]", highlight=False)
    elif json:
        sys.stdout.flush()
        sys.stdout.buffer.write(measured.measurement.to_json().encode())  # JSON is UTF-8, whatever the locale
        sys.stdout.buffer.flush()
    else:
        Console().print(measurement_view(measured.measurement, str(measured.folder)))

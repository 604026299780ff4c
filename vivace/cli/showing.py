"""The user's command beside our own words on a terminal: a progress bar, and the command's output above it.

Shared by the commands that run the user's training (measure, check, tune, find).
"""

from __future__ import annotations

import codecs
import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from vivace.hardware.torch_needed import need_torch
from vivace.measure.command import Progress, Sink, nowhere, passthrough
from vivace.protocol.progress import SeenProgress
from vivace.records.base import Record

__all__ = ["embedded_example", "print_record", "shown"]

_LONGEST_LINE = 1 << 20  # characters; a longer line is shown in pieces, so that the command never waits for us


def embedded_example() -> list[str]:
    """The command that is taken when none is given. It runs in this Python."""
    need_torch("the example", "give a command: -- python train.py")
    return [sys.executable, "-m", "vivace.demo.classifier"]


def print_record(record: Record) -> None:
    """For ``--json``: the record and nothing else. JSON is UTF-8, whatever the locale."""
    sys.stdout.flush()
    sys.stdout.buffer.write(record.to_json().encode())
    sys.stdout.buffer.flush()


@contextlib.contextmanager
def shown(console: Console, json: bool, quiet: bool) -> Iterator[tuple[Sink, Progress, Callable[[str], None]]]:
    """(sink, progress, say): with a bar on a terminal; elsewhere the command's output passes through untouched.

    ``say`` prints a line of ours above the bar, or to stderr.
    """

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True)  # folders and commands in it are to be copied

    if not (console.is_terminal and sys.stderr.isatty()):  # rich alone believes FORCE_COLOR
        sink: Sink = nowhere if quiet else passthrough(to_stdout=not json)
        yield sink, lambda _: None, say
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[steps]}"),
        TimeElapsedColumn(),
    )
    screen = _Screen(console, stdout_too=json or sys.stdout.isatty())
    with Bar(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("starting the command", total=None, steps="")

        def progress(seen: SeenProgress) -> None:
            of = seen.of
            bar.update(
                task,
                description=seen.stage,
                total=of,
                completed=seen.done if of else 0,
                steps=f"step {seen.steps}",
            )

        try:
            yield nowhere if quiet else screen.show, progress, say
        finally:
            screen.finish()


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

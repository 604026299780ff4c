"""The watched command: runs it, reads its metric as it comes, and ends it at any moment.

``watch`` is called by races and by hyper-parameter search, also from several threads at once. The command's output is
kept in its folder (``stdout.log``, ``stderr.log``) and passed to a sink. It runs in a process group of its own, so that
it can be ended with all its ranks and workers; Ctrl-C is passed on to it.

    asked = Watch(("python", "train.py"), folder, Wanted.parse("val_loss"))
    watched = watch(asked, on_reading=lambda reading: reading.value < 3.28)
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import IO

from vivace.errors import UserError
from vivace.measure.command import Sink, nowhere
from vivace.measure.standard_input import standard_input
from vivace.measure.starting import command_not_found, environment_for
from vivace.practices.engine.registry import environment_of
from vivace.protocol.request import Entry, ProcessRequest
from vivace.race.ending import POLITE_S, end_everything
from vivace.race.metrics.lines import LineSplitter
from vivace.race.metrics.reader import MetricReader
from vivace.race.metrics.readings import MetricProblem, Reading
from vivace.race.metrics.written import WrittenFiles
from vivace.race.targets import Wanted

__all__ = ["EndedBy", "MetricSource", "Watch", "Watched", "watch"]

_POLL_S = 0.1
_FILES_S = 0.2
_AFTER_END_S = 2.0  # a grandchild that outlives the command may keep its pipe open
_MOST_WAITING = 1000  # pieces of output; then the command waits for us, as for any reader of a pipe
_PIECE = 65536


class EndedBy(StrEnum):
    ITSELF = "itself"
    READING = "reading"
    """``on_reading`` asked for it: the target is reached, or the trial is not worth going on."""
    LIMIT = "limit"
    """``on_poll`` asked for it, or ``timeout_s`` is over."""
    PROBLEM = "problem"
    """The metric cannot be read: ``Watched.problem`` says why."""
    STOPPED = "stopped"
    """The ``stop`` event was set."""
    INTERRUPTED = "interrupted"
    """Ctrl-C, or a signal that ends vivace."""


@dataclass(frozen=True)
class MetricSource:
    """Where the metric is read: the printout by name or ``pattern``, or ``files`` (CSV, JSON, TensorBoard)."""

    pattern: str | None = None
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.pattern is not None and self.files:
            raise UserError("--pattern reads the printout and --metric-file a file", hint="leave out one of them")


@dataclass(frozen=True)
class Watch:
    """What to run and what to read. ``folder`` (which exists) gets the logs.

    ``practices`` and ``seed_offset`` reach the process as with ``vivace run --with``, and it keeps a ``journal`` of its
    steps; with none of them, nothing of vivace enters it. ``environment``: over that of vivace itself. ``expected``:
    the target's value, to notice another unit.
    """

    command: tuple[str, ...]
    folder: Path
    wanted: Wanted
    source: MetricSource = MetricSource()
    expected: float | None = None
    practices: tuple[str, ...] = ()
    seed_offset: int | None = None
    journal: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    timeout_s: float | None = None


@dataclass(frozen=True)
class Watched:
    """``exit_code``: the command's own, as a shell reports it; ``started_at``: as ``time.time()`` tells."""

    ended: EndedBy
    exit_code: int
    seconds: float
    started_at: float
    readings: tuple[Reading, ...]
    problem: MetricProblem | None = None

    @property
    def crashed(self) -> bool:
        return self.ended is EndedBy.ITSELF and self.exit_code != 0


def watch(
    request: Watch,
    on_reading: Callable[[Reading], bool],
    sink: Sink = nowhere,
    stop: threading.Event | None = None,
    on_poll: Callable[[float], bool] | None = None,
) -> Watched:
    """Run the command until it ends, ``on_reading`` or ``on_poll`` return true, or ``stop`` is set.

    ``on_poll`` is called several times a second with the seconds since the start. The metric that never came is a
    ``problem`` too, if the command ended well.
    """
    return _Run(request, on_reading, sink, stop or threading.Event(), on_poll).to_its_end()


class _Run:
    def __init__(
        self,
        request: Watch,
        on_reading: Callable[[Reading], bool],
        sink: Sink,
        stop: threading.Event,
        on_poll: Callable[[float], bool] | None,
    ) -> None:
        self.request, self.on_reading, self.sink, self.stop, self.on_poll = request, on_reading, sink, stop, on_poll
        self.reader = MetricReader(request.wanted, request.source.pattern, request.expected)
        self.readings: list[Reading] = []
        self.problem: MetricProblem | None = None
        self.pieces: queue.Queue[tuple[str, bytes, float]] = queue.Queue(_MOST_WAITING)
        self.lines = {"stdout": LineSplitter(), "stderr": LineSplitter()}
        self.open_streams = set(self.lines)
        files, cwd = request.source.files, request.cwd or Path.cwd()
        self.files = WrittenFiles(files, cwd) if files else None
        self.files_seen_at = 0.0
        self.started_at = time.time()
        self.began = time.monotonic()

    def to_its_end(self) -> Watched:
        with _interrupts() as interrupts:  # also while it starts: it would go on without us
            process = self._start()
            try:
                ended = self._wait(process, interrupts)
            except BaseException:
                end_everything(process, signal.SIGTERM, polite_s=0.0)
                raise
            if ended is not EndedBy.ITSELF:
                asked = signal.SIGINT if ended is EndedBy.INTERRUPTED else signal.SIGTERM
                polite_s = 0.0 if len(interrupts) > 1 else POLITE_S
                end_everything(process, asked, polite_s)
                self._drain()
        code = process.wait()
        if ended is EndedBy.ITSELF and code == 0 and not self.readings and self.problem is None:
            self.problem = self.reader.never_seen()
        return Watched(
            ended, code if code >= 0 else 128 - code, time.monotonic() - self.began, self.started_at,
            tuple(self.readings), self.problem,
        )  # fmt: skip

    def _start(self) -> subprocess.Popen[bytes]:
        request, stdin = self.request, standard_input()
        try:
            process = subprocess.Popen(
                list(request.command), env=_environment(request), cwd=request.cwd, stdin=stdin.for_a_run(),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0,
            )  # fmt: skip
        except FileNotFoundError:
            raise command_not_found(request.command[0], "race") from None
        except OSError as error:
            raise UserError(f"cannot start {request.command[0]}: {error.strerror or error}") from None
        stdin.feed(process)
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
            assert pipe is not None
            threading.Thread(target=self._receive, args=(name, pipe), daemon=True).start()
        return process

    def _receive(self, name: str, pipe: IO[bytes]) -> None:
        """In a thread: keep the output, pass it on, and note when it came."""
        with contextlib.ExitStack() as stack:
            file = None
            with contextlib.suppress(OSError):  # a full disk must not stop the training
                file = stack.enter_context((self.request.folder / f"{name}.log").open("wb", buffering=0))
            while True:
                data = os.read(pipe.fileno(), _PIECE)
                self.pieces.put((name, data, time.monotonic() - self.began))
                if not data:
                    return
                with contextlib.suppress(OSError):
                    if file is not None:
                        file.write(data)
                with contextlib.suppress(OSError, ValueError):
                    self.sink(name, data)

    def _wait(self, process: subprocess.Popen[bytes], interrupts: list[int]) -> EndedBy:
        ended_at: float | None = None
        while True:
            wanted = self._take_pieces() or self._take_files()
            if self.problem is not None:
                return EndedBy.PROBLEM
            if wanted:
                return EndedBy.READING
            if ended_at is None and process.poll() is not None:
                ended_at = time.monotonic()
            if ended_at is not None:
                if not self.open_streams or time.monotonic() - ended_at > _AFTER_END_S:
                    return self._finish()
            elif asked := self._asked_to_end(interrupts):
                return asked

    def _asked_to_end(self, interrupts: list[int]) -> EndedBy | None:
        seconds = time.monotonic() - self.began
        if interrupts:
            return EndedBy.INTERRUPTED
        if self.stop.is_set():
            return EndedBy.STOPPED
        timeout_s = self.request.timeout_s
        if (timeout_s is not None and seconds > timeout_s) or (self.on_poll is not None and self.on_poll(seconds)):
            return EndedBy.LIMIT
        return None

    def _finish(self) -> EndedBy:
        """The command has ended: what it left without a line's end, and in its files."""
        for lines in self.lines.values():
            self._take_lines(lines.finish(), time.monotonic() - self.began)
        self._take_files(now=True)
        try:
            self.reader.finish()
        except MetricProblem as problem:
            self.problem = self.problem or problem
        return EndedBy.PROBLEM if self.problem is not None else EndedBy.ITSELF

    def _drain(self) -> None:
        """Threads that wait for room in the queue must get rid of their output, and see its end."""
        until = time.monotonic() + _AFTER_END_S
        while self.open_streams and time.monotonic() < until:
            with contextlib.suppress(queue.Empty):
                name, data, _at_s = self.pieces.get(timeout=_POLL_S)
                if not data:
                    self.open_streams.discard(name)

    def _take_pieces(self) -> bool:
        """Whether a reading asks to end. Waits a little for the first piece, and takes what is there."""
        with contextlib.suppress(queue.Empty):
            name, data, at_s = self.pieces.get(timeout=_POLL_S)
            while True:
                if not data:
                    self.open_streams.discard(name)
                elif self._take_lines(self.lines[name].feed(data), at_s):
                    return True
                name, data, at_s = self.pieces.get_nowait()
        return False

    def _take_lines(self, lines: list[str], at_s: float) -> bool:
        if self.files is not None:
            return False
        return any(self._take(functools.partial(self.reader.read_line, line, at_s)) for line in lines)

    def _take_files(self, now: bool = False) -> bool:
        if self.files is None or not (now or time.monotonic() - self.files_seen_at > _FILES_S):
            return False
        self.files_seen_at = time.monotonic()
        for parsed, written_at, source, text in self.files.read():
            at_s = max(0.0, written_at - self.started_at)
            if self._take(functools.partial(self.reader.read, parsed, at_s, source, text)):
                return True
        return False

    def _take(self, read: Callable[[], Reading | None]) -> bool:
        if self.problem is not None:
            return False
        try:
            reading = read()
        except MetricProblem as problem:
            self.problem = problem
            return False
        if reading is None:
            return False
        self.readings.append(reading)
        return self.on_reading(reading)


def _environment(request: Watch) -> dict[str, str]:
    base = {"PYTHONUNBUFFERED": "1", **environment_of(request.practices), **os.environ, **request.environment}
    if request.cwd is not None:
        base["PWD"] = str(request.cwd)
    if not request.practices and request.seed_offset is None and not request.journal:
        return base
    asked = ProcessRequest(
        folder=str(request.folder.resolve()), entry=Entry.PRACTICES, measure=False, practices=request.practices,
        seed_offset=request.seed_offset, journal=request.journal,
    )  # fmt: skip
    return environment_for(asked, base)


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Signals that would end vivace, as they come: the command, in a group of its own, must not outlive it."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if previous[number] is not signal.SIG_IGN:
            signal.signal(number, note)
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

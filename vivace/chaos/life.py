"""One start of the command: its output passed on and read, its reports collected, and an end if it hangs."""

from __future__ import annotations

import array
import codecs
import contextlib
import fcntl
import os
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from vivace.chaos.watching import Lines, Reports
from vivace.errors import UserError
from vivace.measure.command import Sink, end_tree
from vivace.measure.starting import command_not_found
from vivace.protocol.chaos import GO, Told

__all__ = ["Blow", "Lived", "live"]

_POLL_S = 0.05
_DRAIN_S = 2.0
_MOST_OF_A_LINE = 1 << 16


@dataclass(frozen=True)
class Blow:
    """A signal from outside, for commands that nobody can get into: ``after_s`` after the start."""

    number: signal.Signals
    rank: int
    after_s: float


@dataclass
class Lived:
    exit_code: int | None
    """None: it hung, and was ended."""
    seconds: float
    ended_at: float
    reports: Reports
    lines: Lines
    target: str | None = None
    timed_out: bool = False


def live(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    sink: Sink,
    patience_s: float,
    timeout_s: float | None,
    on_step: Callable[[int], None],
    blow: Blow | None = None,
    known: Collection[str] = (),
) -> Lived:
    """To its end; or, once the fault has come, until no rank has made a step for ``patience_s``.

    ``known``: the shapes of lines that an earlier life has printed, which are no news.
    """
    reports, lines = Reports(folder), Lines(shapes=set(known))
    began = time.monotonic()
    process = _start(command, environment)
    readers = [
        threading.Thread(target=_read, args=(name, pipe, folder / f"{name}.log", sink, lines), daemon=True)
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr))
    ]
    for reader in readers:
        reader.start()
    lived = Lived(None, 0.0, 0.0, reports, lines)
    try:
        hung = _watch(process, lived, began, patience_s, timeout_s, on_step, blow)
    except BaseException:
        end_tree(process)
        raise
    lived.ended_at, lived.seconds = time.time(), time.monotonic() - began
    for reader in readers:
        reader.join(timeout=2.0)  # a grandchild that outlives the command may keep the pipe open
    reports.look()
    _note_fault(lived)
    if not hung:
        code = process.returncode
        lived.exit_code = code if code >= 0 else 128 - code
    return lived


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(list(command), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except FileNotFoundError:
        raise command_not_found(command[0], "chaos --fault kill") from None
    except OSError as error:
        raise UserError(f"cannot start {command[0]}: {error.strerror or error}") from None


def _watch(
    process: subprocess.Popen[bytes],
    lived: Lived,
    began: float,
    patience_s: float,
    timeout_s: float | None,
    on_step: Callable[[int], None],
    blow: Blow | None,
) -> bool:
    """True when it hung."""
    while process.poll() is None:
        time.sleep(_POLL_S)
        for report in lived.reports.look():
            on_step(report.step)
            if report.told is Told.READY:
                _let_it_come(process, lived.reports.folder)
        _note_fault(lived)
        past_s = time.monotonic() - began
        if blow is not None and lived.target is None and past_s >= blow.after_s:
            lived.target = _hit(process, blow)
            lived.lines.struck(time.time())
        fault_at = lived.lines.fault_at
        last = max(fault_at or 0.0, lived.reports.last_step_at() or 0.0)
        lived.timed_out = timeout_s is not None and past_s > timeout_s
        if lived.timed_out or (fault_at is not None and time.time() - last > patience_s):
            lived.lines.closed = True
            end_tree(process)
            return True
    return False


def _let_it_come(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Once all that was printed is read, or after a while: other ranks may print all the time."""
    until = time.monotonic() + _DRAIN_S
    while time.monotonic() < until and any(_unread(pipe) for pipe in (process.stdout, process.stderr)):
        time.sleep(_POLL_S)
    time.sleep(_POLL_S)  # what was just read is on its way to the lines
    (folder / GO).touch()


def _unread(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    count = array.array("i", [0])
    with contextlib.suppress(OSError, ValueError):
        fcntl.ioctl(pipe.fileno(), termios.FIONREAD, count)
    return count[0]


def _note_fault(lived: Lived) -> None:
    fault = lived.reports.fault()
    if fault is not None and lived.lines.fault_at is None:
        lived.lines.struck(fault.at)
        lived.target = f"rank {fault.rank}, process {fault.pid}"


def _hit(process: subprocess.Popen[bytes], blow: Blow) -> str | None:
    """The processes without children of their own, oldest first: a launcher starts its ranks in order."""
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(process.pid)
        leaves = [one for one in [root, *root.children(recursive=True)] if not one.children()]
        leaves.sort(key=lambda one: one.create_time())
        if blow.rank < len(leaves):
            os.kill(leaves[blow.rank].pid, blow.number)
            return f"process {leaves[blow.rank].pid} ({leaves[blow.rank].name()})"
    return None


def _read(name: str, pipe: IO[bytes] | None, log: Path, sink: Sink, lines: Lines) -> None:
    assert pipe is not None
    decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
    with log.open("wb", buffering=0) as file:
        while data := os.read(pipe.fileno(), 65536):
            with contextlib.suppress(OSError, ValueError):
                file.write(data)
                sink(name, data)
            *whole, rest = (rest + decoder.decode(data)).replace("\r", "\n").split("\n")
            for line in whole:
                lines.feed(line)
            rest = rest[-_MOST_OF_A_LINE:]
    if rest:
        lines.feed(rest)

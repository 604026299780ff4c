"""Starts the user's command with the bootstrap on its path, passes its output on, and waits for it.

Touches: the run's folder (``stdout.log``, ``stderr.log``, the stop file) and the command's process tree, nothing else.
No shell is involved: the words of the command go to the operating system as they are.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from vivace.errors import ExitCode, UserError
from vivace.files import write_text_atomically
from vivace.measure.inside.attendant import STOP_FILE
from vivace.measure.standard_input import StandardInput
from vivace.measure.starting import command_not_found, environment_for
from vivace.protocol.ending import TIME_OVER, Ended, Ending
from vivace.protocol.progress import SeenProgress
from vivace.protocol.request import ProcessRequest

__all__ = ["Outcome", "end_tree", "nowhere", "passthrough", "run_command"]

_DID_NOT_END = Ended(Ending.INTERRUPTED, "interrupted, and ended by vivace: it did not end by itself")
_POLL_S = 0.1
_STOP_S = 3.0  # time for the process to write what it has seen, before it is terminated
_INTERRUPT_S = 10.0
_TERMINATE_S = 5.0

Progress = Callable[[SeenProgress], None]
Sink = Callable[[str, bytes], None]


def nowhere(_stream: str, _data: bytes) -> None:
    """A sink for output that nobody wants to see again; the run's folder has it."""


@dataclass(frozen=True)
class Outcome:
    """How the command ended. ``exit_code`` is its own, as a shell would report it."""

    exit_code: int
    seconds: float
    timed_out: bool = False
    interrupted: bool = False


def run_command(
    command: Sequence[str],
    request: ProcessRequest,
    sink: Sink,
    progress: Progress,
    timeout_s: float | None = None,
    more_environment: Mapping[str, str] | None = None,
    log_suffix: str = "",
    cwd: Path | None = None,
    stdin: StandardInput | None = None,
) -> Outcome:
    """Run it to its end (or to ``timeout_s``). ``sink(stream, data)`` gets its output as it comes.

    ``more_environment`` are defaults: variables that the user has set win. ``cwd``: where it runs, if not here.
    ``stdin``: an input that later runs get too; None: the command has ours.
    """
    folder = Path(request.folder)
    began = time.monotonic()
    place = {"PWD": str(cwd)} if cwd is not None else {}
    process = _start(command, {**(more_environment or {}), **os.environ, **place}, request, cwd, stdin)
    if stdin is not None:
        stdin.feed(process)
    readers = _start_readers(process, folder, sink, log_suffix)
    with _interrupts_counted() as interrupts:
        timed_out = _wait(process, folder, progress, began, timeout_s, interrupts)
    for reader in readers:
        reader.join(timeout=2.0)  # a grandchild that outlives the command may keep the pipe open
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    if timed_out:
        code = ExitCode.TIMEOUT
    elif interrupts and process.returncode != 0:
        code = 128 + interrupts[0][1]
    return Outcome(code, time.monotonic() - began, timed_out=timed_out, interrupted=bool(interrupts))


def _start(
    command: Sequence[str],
    base: Mapping[str, str],
    request: ProcessRequest,
    cwd: Path | None,
    stdin: StandardInput | None,
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(command), env=environment_for(request, base), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd,
            stdin=stdin.for_a_run() if stdin is not None else None,
        )  # fmt: skip
    except FileNotFoundError:
        raise command_not_found(command[0], "measure") from None
    except OSError as error:
        raise UserError(f"cannot start {command[0]}: {error.strerror or error}") from None


def _start_readers(
    process: subprocess.Popen[bytes], folder: Path, sink: Sink, log_suffix: str
) -> list[threading.Thread]:
    readers = []
    for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
        assert pipe is not None
        log = folder / f"{name}{log_suffix}.log"
        reader = threading.Thread(target=_pass_on, args=(name, pipe, log, sink), daemon=True)
        reader.start()
        readers.append(reader)
    return readers


def _pass_on(name: str, pipe: IO[bytes], log: Path, sink: Sink) -> None:
    with contextlib.ExitStack() as stack:
        file = None
        with contextlib.suppress(OSError):  # neither a missing folder nor a full disk may stop the training
            file = stack.enter_context(log.open("wb", buffering=0))
        while data := os.read(pipe.fileno(), 65536):
            with contextlib.suppress(OSError):
                if file is not None:
                    file.write(data)
            with contextlib.suppress(OSError, ValueError):
                sink(name, data)


@contextlib.contextmanager
def _interrupts_counted() -> Iterator[list[tuple[float, int]]]:
    """Ctrl-C reaches the command too (same terminal): note it and let the command end by itself first.

    Slurm's warnings (SIGUSR1, SIGUSR2) reach every process of a step, and are for the training: they must not end us.
    """
    times: list[tuple[float, int]] = []  # (when, which signal)
    if threading.current_thread() is not threading.main_thread():
        yield times
        return
    previous = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)}
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _frame: times.append((time.monotonic(), received)))
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda _received, _frame: None)
    try:
        yield times
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _wait(
    process: subprocess.Popen[bytes],
    folder: Path,
    progress: Progress,
    began: float,
    timeout_s: float | None,
    interrupts: list[tuple[float, int]],
) -> bool:
    """Wait for the command, telling its progress. True when it ran out of time."""
    forwarded = False
    while process.poll() is None:
        time.sleep(_POLL_S)
        if latest := _latest_progress(folder):
            progress(latest)
        now = time.monotonic()
        if interrupts and not forwarded and now - interrupts[0][0] > 1.0:
            forwarded = True  # not from a terminal, or ignored: ask the command ourselves, once
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        if len(interrupts) > 1 or (interrupts and now - interrupts[0][0] > _INTERRUPT_S):
            _ask_for_what_was_seen(process, folder, _DID_NOT_END)
            end_tree(process)
            break
        if timeout_s is not None and now - began > timeout_s and not interrupts:
            _ask_for_what_was_seen(process, folder, TIME_OVER)
            end_tree(process)
            return True
    return False


def _ask_for_what_was_seen(process: subprocess.Popen[bytes], folder: Path, why: Ended) -> None:
    """Each training process has an attendant that writes what it has when it sees the stop file."""
    with contextlib.suppress(OSError):
        write_text_atomically(folder / STOP_FILE, why.to_text())
    training = len(list(folder.glob("progress-*.json")))
    until = time.monotonic() + _STOP_S
    while process.poll() is None and time.monotonic() < until and len(list(folder.glob("rank-*.json"))) < training:
        time.sleep(_POLL_S)


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Terminate the command and everything it started; kill what does not listen."""
    try:
        tree = [psutil.Process(process.pid)]
        tree += tree[0].children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for member in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.terminate()
    # The command itself is ours to reap: psutil would take its exit code away.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_TERMINATE_S)
    _gone, alive = psutil.wait_procs(tree[1:], timeout=_TERMINATE_S)
    for member in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    if process.poll() is None:
        process.kill()
    process.wait()


def _latest_progress(folder: Path) -> SeenProgress | None:
    best: SeenProgress | None = None
    for path in folder.glob("progress-*.json"):
        with contextlib.suppress(OSError, ValueError):
            seen = SeenProgress.from_text(path.read_text())
            if best is None or (seen.rank, -seen.steps) < (best.rank, -best.steps):
                best = seen
    return best


def passthrough(to_stdout: bool) -> Sink:
    """A sink that passes the command's output on; with ``to_stdout`` false all of it goes to stderr."""
    lock = threading.Lock()

    def sink(stream: str, data: bytes) -> None:
        target = sys.stdout if stream == "stdout" and to_stdout else sys.stderr
        with lock:
            target.buffer.write(data)
            target.buffer.flush()

    return sink

"""The standard input of a command that is run many times (check, tune, find): every run gets the same.

A file is read again from where it stood. What comes through a pipe is passed on to the first run and kept for the
others; nothing is read ahead of the command, so a pipe that nobody closes makes nobody wait. A terminal cannot be
replayed: the runs get an empty input, and a command that asks for something fails in the first run, not in the second.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import stat
import subprocess
import threading
from enum import Enum

from vivace.errors import UserError

__all__ = ["StandardInput", "standard_input", "terminal_hint"]

MOST_KEPT = 64 * 2**20  # bytes
_PIECE = 65536
_POLL_S = 0.1


class _Kind(Enum):
    NOTHING = "nothing"
    TERMINAL = "terminal"
    FILE = "file"
    PIPE = "pipe"


class StandardInput:
    """One for the whole process: what was read from a pipe is gone from it."""

    def __init__(self, descriptor: int = 0, most_kept: int = MOST_KEPT) -> None:
        self.descriptor, self.most_kept = descriptor, most_kept
        self.kind = _kind_of(descriptor)
        self._start = os.lseek(descriptor, 0, os.SEEK_CUR) if self.kind is _Kind.FILE else 0
        self._kept: list[bytes] = []
        self._lock = threading.Lock()  # one run at a time reads on
        self._ended = self._too_much = False

    @property
    def is_terminal(self) -> bool:
        return self.kind is _Kind.TERMINAL

    def for_a_run(self) -> int | None:
        """What to start the process with (``stdin=``)."""
        if self._too_much:
            raise UserError(
                f"the command reads more than {self.most_kept / 2**20:.0f} MiB from a pipe; vivace cannot keep it for "
                "the next run",
                hint="save it in a file: vivace … -- COMMAND < FILE",
            )
        if self.kind is _Kind.FILE:
            os.lseek(self.descriptor, self._start, os.SEEK_SET)
            return self.descriptor
        return subprocess.PIPE if self.kind is _Kind.PIPE else subprocess.DEVNULL

    def feed(self, process: subprocess.Popen[bytes]) -> None:
        """Pass on what is kept, and what comes; in a thread, until the process or the input ends."""
        if process.stdin is not None:
            pipe = os.dup(process.stdin.fileno())  # the thread's own: once closed, a number is given to another file
            process.stdin.close()
            threading.Thread(target=self._feed, args=(process, pipe), daemon=True).start()

    def _feed(self, process: subprocess.Popen[bytes], pipe: int) -> None:
        number = 0
        with contextlib.suppress(OSError, ValueError):  # the command has ended, or closed its input
            while process.poll() is None:
                piece = self._piece(number)
                if piece == b"":
                    break
                if piece is not None:
                    _write(pipe, piece)
                    number += 1
        os.close(pipe)

    def _piece(self, number: int) -> bytes | None:
        """Kept, or read now; None where it has not come yet, and nothing at the end. The run before may still read."""
        with self._lock:
            if number < len(self._kept):
                return self._kept[number]
            if self._ended:
                return b""
            if not select.select([self.descriptor], [], [], _POLL_S)[0]:
                return None
            piece = os.read(self.descriptor, _PIECE)
            self._ended = not piece
            if sum(map(len, self._kept)) + len(piece) > self.most_kept:
                self._too_much = True
            elif piece:
                self._kept.append(piece)
            return piece


@functools.cache
def standard_input() -> StandardInput:
    return StandardInput()


def terminal_hint() -> str | None:
    """For a command that failed while it could not read from the terminal."""
    if not standard_input().is_terminal:
        return None
    return "runs that are repeated cannot read from the terminal; if the command asks for input: vivace … < answers.txt"


def _kind_of(descriptor: int) -> _Kind:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:  # closed by whoever started us
        return _Kind.NOTHING
    if os.isatty(descriptor):
        return _Kind.TERMINAL
    if stat.S_ISREG(mode):
        return _Kind.FILE
    return _Kind.PIPE if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else _Kind.NOTHING


def _write(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]

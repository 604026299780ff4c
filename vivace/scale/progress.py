"""Whether the ranks get on: a rank that hangs in the script's own code keeps all others waiting, and nothing is said.

Each rank counts the exchanges that it has begun and ended, in memory that the launcher sees. If nothing moves for a
minute while some ranks wait, the launcher names those that do not, and where they stand. It ends nothing: the rank may
be slow for a good reason. Standard library only: the launcher reads this file, too.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import signal
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Behind", "Progress", "Standstill", "line_of", "prepare", "where_it_stands"]

_LOOKS = 60  # one after the other, a second apart; looks and not seconds, for the launcher may be stopped itself
_COUNTS = struct.Struct("<QQ")  # exchanges begun, and ended
_PATIENCE_S = 2.0
_NOT_THE_SCRIPT = ("site-packages", "/lib/python", str(Path(__file__).parents[1]))


def prepare(folder: Path, world: int) -> None:
    """By the launcher, before there are ranks."""
    (folder / "progress").write_bytes(bytes(_COUNTS.size * world))


class Progress:
    """In a rank: ``with progress:`` around each exchange that is waited for."""

    def __init__(self, folder: Path | None, rank: int) -> None:
        self._at, self._begun, self._ended = rank * _COUNTS.size, 0, 0
        self._memory: Any = None
        with contextlib.suppress(OSError, ValueError):  # started by another launcher than ours
            if folder is not None and (folder / "progress").exists():
                with (folder / "progress").open("r+b") as file:
                    self._memory = mmap.mmap(file.fileno(), 0)
                _answer_where(folder, rank)

    def __enter__(self) -> None:
        self._begun += 1
        if self._memory is not None:
            _COUNTS.pack_into(self._memory, self._at, self._begun, self._ended)

    def __exit__(self, *_: Any) -> None:
        self._ended += 1
        if self._memory is not None:
            _COUNTS.pack_into(self._memory, self._at, self._begun, self._ended)


@dataclass(frozen=True)
class Behind:
    """``ranks`` have not come to an exchange that ``waiting`` have begun; none if all wait, each for another one."""

    ranks: list[int]
    waiting: list[int]


class Standstill:
    """In the launcher: ``look`` about once a second. An answer comes once for each standstill."""

    def __init__(self, folder: Path, looks: int = _LOOKS) -> None:
        self.path, self.looks = folder / "progress", looks
        self._counts = b""
        self._seen = 0

    def look(self) -> Behind | None:
        try:
            counts = self.path.read_bytes()
        except OSError:
            return None
        self._seen = self._seen + 1 if counts == self._counts else 0
        self._counts = counts
        ranks = list(_COUNTS.iter_unpack(counts))
        waiting = [rank for rank, (begun, ended) in enumerate(ranks) if begun > ended]
        if self._seen != self.looks or not waiting:
            return None
        return Behind([rank for rank in range(len(ranks)) if rank not in waiting], waiting)


# -- where a rank stands ---------------------------------------------------------------------------------------------


def _signal() -> int:
    return int(signal.SIGRTMIN) + 9


def _answer_where(folder: Path, rank: int) -> None:
    """At a signal, also while Python waits for C, this rank leaves the stacks of its threads in the folder."""
    file = os.open(folder / f"stacks-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    faulthandler.register(_signal(), file=file, all_threads=True, chain=False)
    (folder / f"pid-{rank}").write_text(str(os.getpid()))


def where_it_stands(folder: Path, rank: int) -> str:
    """The stacks of a rank's threads; empty where it does not answer."""
    path = folder / f"stacks-{rank}"
    with contextlib.suppress(OSError, ValueError):
        before = path.stat().st_size
        os.kill(int((folder / f"pid-{rank}").read_text()), _signal())
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            time.sleep(0.1)
            if path.stat().st_size > before and path.stat().st_size == len(text := path.read_bytes()):
                return text[before:].decode(errors="replace")
    return ""


def line_of(stacks: str) -> str:
    """Where the main thread is, in the script's own code where it is there.

    >>> line_of('Thread 0x1 (most recent call first):\\n  File "/x/site-packages/torch/a.py", line 3 in wait\\n'
    ...         '  File "train.py", line 41 in load\\n')
    'train.py:41, in load'
    """
    frames = [line.strip() for line in stacks.rpartition("(most recent call first):")[2].splitlines()]
    frames = [line for line in frames if line.startswith('File "')]
    own = [
        line for line in frames if "site-packages" not in line and "/lib/python" not in line and "vivace" not in line
    ]
    if not frames:
        return ""
    path, _, rest = (own or frames)[0][len('File "') :].partition('", line ')
    number, _, function = rest.partition(" in ")
    return f"{path}:{number}, in {function}"

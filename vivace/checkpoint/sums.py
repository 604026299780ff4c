"""Sizes and SHA-256 sums of files: taken while a file is written, compared when it is read again.

The sum is that of the bytes that were meant to be written. A sum of what is read back would bless what a broken disk
made of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FileSum", "SummingFile", "sum_of_bytes", "sum_of_file"]

_PIECE = 4 * 2**20


@dataclass(frozen=True)
class FileSum:
    """What a file must be. ``name`` has no folder."""

    name: str
    bytes: int
    sha256: str


class SummingFile:
    """A new file, opened for writing in order; ``close`` returns when it is on disk.

    What torch needs of a file, no more. ``error`` keeps the first error of the system: torch hides it behind its own.
    """

    def __init__(self, path: Path, on_write: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self.bytes = 0
        self.error: OSError | None = None
        self._sum = hashlib.sha256()
        self._on_write = on_write
        self._file = path.open("xb", buffering=_PIECE)  # never over another file; with the umask's mode

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._sum.update(view)
        try:
            self._file.write(view)
        except OSError as error:
            self.error = self.error or error
            raise
        self.bytes += view.nbytes
        self._on_write()
        return view.nbytes

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        """At the end: torch asks for it after every tensor."""

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self.error = self.error or error
            raise
        finally:
            self._shut()

    def _shut(self) -> None:
        try:
            self._file.close()
        except OSError as error:  # it tries to flush again
            self.error = self.error or error

    def sum(self) -> FileSum:
        return FileSum(self.path.name, self.bytes, self._sum.hexdigest())


def sum_of_file(path: Path) -> FileSum:
    """Reads every byte. Raises ``OSError``."""
    total, size = hashlib.sha256(), 0
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_PIECE):
            total.update(data)
            size += len(data)
    return FileSum(path.name, size, total.hexdigest())


def sum_of_bytes(name: str, data: bytes) -> FileSum:
    return FileSum(name, len(data), hashlib.sha256(data).hexdigest())

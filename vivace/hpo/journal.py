"""Optuna's journal file, kept whole when a writer is killed or the disk is full.

Optuna 5.0.0 appends to a line that a killed writer left half written, and every reader of the study fails from then on
(optuna issue 5138). Here each writer first cuts such a rest off, under the lock; what it held was never acknowledged
to anybody. The format is Optuna's: its own classes and optuna-dashboard open the file.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock

from vivace.hpo.locking import FileLock

__all__ = ["RepairingJournal"]

_BACK = 1 << 16


class _Lock(FileLock, BaseJournalFileLock):
    """As Optuna asks for it: ``FileLock`` has its two methods."""


class RepairingJournal(JournalFileBackend):
    def __init__(self, path: Path) -> None:
        whole = path.absolute()  # Optuna's own lock spins for ever on a stale lock of a relative path
        self._own_lock = _Lock(Path(f"{whole}.lock"))
        super().__init__(str(whole), lock_obj=self._own_lock)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        data = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        with self._own_lock.held(), self._open() as handle:
            end = _cut_torn_line(handle)
            try:
                _write_all(handle, data, end)
                os.fsync(handle)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, end)
                raise

    @contextlib.contextmanager
    def _open(self) -> Iterator[int]:
        handle = os.open(self._file_path, os.O_RDWR | os.O_CLOEXEC)
        try:
            yield handle
        finally:
            os.close(handle)


def _cut_torn_line(handle: int) -> int:
    """The file's length once it ends with a whole line."""
    size = end = os.fstat(handle).st_size
    while end:
        start = max(0, end - _BACK)
        newline = os.pread(handle, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(handle, end)
    return end


def _write_all(handle: int, data: bytes, at: int) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(handle, data[written:], at + written)

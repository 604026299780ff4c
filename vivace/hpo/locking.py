"""A lock for processes on several machines that share a file system, which a killed holder cannot keep.

The lock is a file that is created exclusively (atomic on local disks, NFS since version 3, Lustre and GPFS, where
``flock`` may not work between machines). It says who holds it. A holder that is provably gone loses it at once; one
that cannot be asked loses it when the file has not changed for ``grace_s`` as seen from here, whatever the clocks say.
Optuna's own locks use the same file name and the same way, so its tools and vivace keep out of each other's way.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from vivace.hpo.identity import Identity, me

__all__ = ["FileLock"]

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.25
_LARGEST = 4096


class FileLock:
    """``acquire`` waits for as long as it takes. Not reentrant."""

    def __init__(self, path: Path, grace_s: float = 30.0) -> None:
        self._path, self._grace_s = str(path.absolute()), grace_s

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> bool:
        """Always true: the name and the result are those of Optuna's locks."""
        pause_s, seen, since = _FIRST_PAUSE_S, None, time.monotonic()
        while True:
            if self._create():
                return True
            state = self._state()
            if state != seen:
                seen, since = state, time.monotonic()
            if state is not None and self._is_stale(since):
                self._break(state)
                continue
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def release(self) -> None:
        """Only what is ours: one that took too long may have lost it to another."""
        holder = self._holder()
        if holder is not None and holder.token == me().token:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

    def _create(self) -> bool:
        try:
            handle = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return False
        try:
            os.write(handle, me().to_json().encode())
        except OSError:
            os.unlink(self._path)  # a full disk: without a name nobody could tell whether the holder lives
            raise
        finally:
            os.close(handle)
        return True

    def _state(self) -> tuple[int, int] | None:
        """Of the lock's file; None when it is gone. Optuna's may be a link that points nowhere."""
        try:
            found = os.lstat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _holder(self) -> Identity | None:
        try:
            with open(self._path, "rb") as file:
                return Identity.from_json(file.read(_LARGEST).decode(errors="replace"))
        except OSError:
            return None

    def _is_stale(self, since: float) -> bool:
        holder = self._holder()
        if holder is not None and (gone := holder.is_gone()) is not None:
            return gone
        return time.monotonic() - since > self._grace_s

    def _break(self, stale: tuple[int, int]) -> None:
        """Remove the lock that was found stale, and no later one: one process at a time looks again and removes."""
        with contextlib.suppress(OSError), _one_at_a_time(f"{self._path}.break"):
            if self._state() == stale:
                aside = f"{self._path}.{uuid.uuid4().hex}"
                os.rename(self._path, aside)
                os.unlink(aside)


@contextlib.contextmanager
def _one_at_a_time(path: str) -> Iterator[None]:
    """Where the file system has no such locks, two machines that break one lock in the same instant stay a risk."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):
            fcntl.lockf(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

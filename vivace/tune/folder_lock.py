"""One process at a time works in a run's folder: two that resume it would write over each other's trials.

The lock is the operating system's (``flock``): it ends with its process, so a killed one leaves nothing behind. Some
network file systems have no such locks; there the process that the file names is looked for instead.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from vivace.errors import UserError

__all__ = ["LOCK", "held"]

LOCK = ".lock"
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold ``folder`` for as long as the block runs; a ``UserError`` if another process holds it."""
    try:
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(f"cannot use {folder}: {error.strerror or error}") from None
    try:
        if not _locked(handle):
            raise UserError(
                f"{folder} is in use by {_holder(handle) or 'another process'}",
                hint="wait until it ends, or stop it with Ctrl-C and resume then",
            )
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{socket.gethostname()} {os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        return not _is_running(handle)  # no locks on this file system
    return True


def _holder(handle: int) -> str | None:
    words = os.pread(handle, 400, 0).decode(errors="replace").split()
    return f"process {words[1]} on {words[0]}" if len(words) == 2 else None


def _is_running(handle: int) -> bool:
    """Whether the process that the file names still runs. One on another machine cannot be asked: it may."""
    words = os.pread(handle, 400, 0).decode(errors="replace").split()
    if len(words) != 2 or not words[1].isdecimal():
        return False
    if words[0] != socket.gethostname():
        return True
    try:
        os.kill(int(words[1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

"""Files that are whole or not there, also after a power cut. Called by every kind of checkpoint.

Written beside the target, flushed to disk, renamed over it; the folder's entry is flushed too. Modes follow the umask.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["SAVING", "first_line", "flush_folder", "write_durably"]

SAVING = ".saving"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def write_durably(
    target: Path, write: Callable[[Any], object], before_replacing: Callable[[], None] = lambda: None
) -> None:
    """``write`` gets the open file; ``before_replacing`` is called when the new file is on disk under another name."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{time.time_ns():x}{SAVING}")
    try:
        with open(temporary, "xb") as file:  # with the umask's mode
            write(file)
            file.flush()
            os.fsync(file.fileno())
        before_replacing()
        os.replace(temporary, target)
        flush_folder(target.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        cause = error.__context__
        if isinstance(cause, OSError) and cause.errno in _NO_ROOM:  # torch hides it
            raise OSError(cause.errno, cause.strerror, str(target)) from error
        raise


def flush_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some network file systems cannot
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

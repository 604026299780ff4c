"""Is there room for a save? Asked before anything is written. A quota is not seen here, only when it is met."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

__all__ = ["need_room"]

_MORE_BYTES = 2**20  # manifests, index, what the file system takes for itself


def need_room(folder: Path, planned_bytes: int) -> None:
    """Raises ``OSError`` (ENOSPC) with both figures if the save cannot fit."""
    needed = int(planned_bytes * 1.01) + _MORE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        text = f"{os.strerror(errno.ENOSPC)}: the save needs {_mib(needed)}, and {_mib(free)} are free"
        raise OSError(errno.ENOSPC, text, str(folder))


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB" if size < 2**30 else f"{size / 2**30:,.2f} GiB"

"""Reads and writes the files that a user names: bounded reads, atomic writes, and errors a user can act on.

Standard library only. Called by the records and by every command that takes a file.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from vivace.errors import UserError

__all__ = ["MOST_BYTES", "read_user_text", "write_text_atomically", "write_user_text"]

MOST_BYTES = 64 * 2**20
"""No file that vivace reads whole comes near this; /dev/zero and a wrong path do."""


def read_user_text(path: Path | str, most_bytes: int = MOST_BYTES) -> str:
    """The file's text. Raises ``OSError``, ``UnicodeDecodeError``, or a ``UserError`` for a file without end."""
    with open(path, "rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise UserError(f"{path} is larger than {most_bytes / 2**20:.0f} MiB, too large for what it should hold")
    return data.decode("utf-8")


def write_user_text(path: Path | str, text: str) -> Path:
    """``write_text_atomically`` for a file that a user named: what goes wrong is a ``UserError``."""
    try:
        return write_text_atomically(Path(path), text)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None


def write_text_atomically(path: Path, text: str, mode: int = 0o644) -> Path:
    """Write beside the target, flush to disk, then rename over it.

    A symbolic link stays one: what it points to is replaced. A device or a pipe is written to, never replaced.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)
        return path
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path

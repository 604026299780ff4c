"""What a command itself said last, from its logs in the run's folder: most often why it failed."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["last_lines", "own_error"]


def own_error(folder: Path, count: int) -> str:
    """The last lines of its stderr, or of its stdout where it wrote nothing there."""
    return last_lines(folder / "stderr.log", count) or last_lines(folder / "stdout.log", count)


def last_lines(log: Path, count: int) -> str:
    """The last ``count`` lines that are not blank; nothing if there is no such log."""
    with contextlib.suppress(OSError):
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return "\n".join(lines[-count:])
    return ""

"""Why a process could not be measured or changed: a file that it leaves in the run's folder.

The bootstrap writes the same text itself, where nothing of vivace can be imported.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from vivace.protocol.ending import Ended

__all__ = ["UNMEASURED", "read_unmeasured", "tell_unmeasured"]

UNMEASURED = "unmeasured-*.json"


def tell_unmeasured(folder: Path, why: Ended) -> None:
    with contextlib.suppress(OSError):
        (folder / UNMEASURED.replace("*", str(os.getpid()))).write_text(why.to_text(), encoding="utf-8")


def read_unmeasured(folder: Path) -> Ended | None:
    """Of several processes, the one with the lowest number: a launcher, or the first rank."""
    for path in sorted(folder.glob(UNMEASURED)):
        with contextlib.suppress(OSError, ValueError):
            return Ended.from_text(path.read_text(encoding="utf-8"))
    return None

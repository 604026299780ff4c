"""Who writes a checkpoint: to tell what a killed job left behind from what another one is writing right now."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path

from vivace.checkpoint.names import OWNER

__all__ = ["ABANDONED_S", "is_abandoned", "write_owner"]

ABANDONED_S = 3600.0  # no save pauses that long; for writers on other machines, and those that left no name
_MOST_BYTES = 4096


def write_owner(folder: Path) -> None:
    (folder / OWNER).write_text(json.dumps(_this_process()))


def is_abandoned(folder: Path) -> bool:
    """Its writer ran here and is gone, or nothing in the folder has changed for an hour."""
    owner = _read(folder)
    here = _this_process()
    known = owner is not None and all(owner.get(key) == here[key] for key in ("host", "boot", "pid_space"))
    if owner is not None and known and owner.get("started"):  # without /proc nobody knows
        return _start_of(owner.get("pid")) != owner.get("started")
    return time.time() - _last_change(folder) > ABANDONED_S


def _this_process() -> dict[str, object]:
    """A container has numbers of its own for processes: ``pid_space`` says whose these are."""
    return {
        "host": socket.gethostname(),
        "boot": _text("/proc/sys/kernel/random/boot_id"),
        "pid_space": _link("/proc/self/ns/pid"),
        "pid": os.getpid(),
        "started": _start_of(os.getpid()),
    }


def _start_of(pid: object) -> str:
    """When the process began, in clock ticks since boot; '' if there is none. Numbers are used again: this is not."""
    if not isinstance(pid, int):
        return ""
    words = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return words[19] if len(words) > 19 and words[0] != "Z" else ""


def _text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text().strip()
    return ""


def _link(path: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path)
    return ""


def _read(folder: Path) -> dict[str, object] | None:
    with contextlib.suppress(OSError, ValueError), open(folder / OWNER, "rb") as file:
        owner = json.loads(file.read(_MOST_BYTES))
        return owner if isinstance(owner, dict) else None
    return None


def _last_change(folder: Path) -> float:
    newest = 0.0
    with contextlib.suppress(OSError):
        newest = folder.stat().st_mtime
        for entry in os.scandir(folder):
            newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
    return newest

"""Which files of the user's folder a command has made, overwritten or deleted, by names, sizes and times.

A look takes a second at most. In a large folder it stops, nearest files first; what it has not seen it does not judge.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from vivace.records.measurement import WrittenFiles

__all__ = ["Look", "look", "not_the_users", "what_changed"]

_MOST_FILES = 20_000
_MOST_S = 1.0
_NAMED = 20
_NOT_THE_USERS = frozenset({
    ".git", ".hg", ".svn", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints",
    "node_modules",
})  # fmt: skip


def not_the_users(path: str) -> bool:
    """Caches, version control and virtual environments."""
    return os.path.basename(path) in _NOT_THE_USERS or os.path.exists(os.path.join(path, "pyvenv.cfg"))


@dataclass
class Look:
    """``files``: size and time of change by path. ``folders``: those of which every file was seen."""

    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    complete: bool = True


def look(folder: Path, leave_out: Path) -> Look:
    """``leave_out``: vivace's own folder. Links are not followed."""
    seen, waiting, until = Look(), deque([""]), time.monotonic() + _MOST_S
    own, output = os.path.realpath(leave_out), _our_output()
    while waiting:
        inside = waiting.popleft()
        if len(seen.files) >= _MOST_FILES or time.monotonic() > until:
            seen.complete = False
            return seen
        try:
            with os.scandir(folder / inside) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    path = os.path.join(inside, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        if not not_the_users(entry.path) and os.path.realpath(entry.path) != own:
                            waiting.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        if (status.st_dev, status.st_ino) not in output:
                            seen.files[path] = (status.st_size, status.st_mtime_ns)
        except OSError:
            continue  # it is gone, or not ours to read
        seen.folders.add(inside)
    return seen


def _our_output() -> set[tuple[int, int]]:
    """``vivace measure … > log.txt`` writes that file itself."""
    found = set()
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            status = os.fstat(stream)
            found.add((status.st_dev, status.st_ino))
    return found


def what_changed(before: Look, after: Look) -> WrittenFiles | None:
    """None where nothing did."""
    made = [p for p in after.files if p not in before.files and _is_new(p, before)]
    overwritten = [p for p in after.files if p in before.files and before.files[p] != after.files[p]]
    deleted = [p for p in before.files if p not in after.files and os.path.dirname(p) in after.folders]
    if not (made or overwritten or deleted):
        return None
    return WrittenFiles(
        made=tuple(made[:_NAMED]),
        overwritten=tuple(overwritten[:_NAMED]),
        deleted=tuple(deleted[:_NAMED]),
        count=len(made) + len(overwritten) + len(deleted),
        complete=before.complete and after.complete,
    )


def _is_new(path: str, before: Look) -> bool:
    """In a folder that was seen, or in one that was not there."""
    folder = os.path.dirname(path)
    while folder and folder not in before.folders and before.complete:
        folder = os.path.dirname(folder)
    return folder in before.folders

"""Which checkpoints a folder has: found by looking, newest first. No link and no "latest" file is trusted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from vivace.checkpoint.errors import Damaged
from vivace.checkpoint.manifest import Complete, read_complete
from vivace.checkpoint.names import COMPLETE, step_of

__all__ = ["Found", "Scan", "next_sequence", "scan"]


@dataclass(frozen=True)
class Found:
    """A folder with a marker. ``complete`` is None where the marker is damaged."""

    folder: Path
    step: int
    complete: Complete | None


@dataclass(frozen=True)
class Scan:
    marked: tuple[Found, ...]
    """Newest first."""
    unmarked: tuple[Path, ...]
    """Saves that never ended, under a final name."""


def scan(root: Path) -> Scan:
    marked, unmarked = [], []
    for name in os.listdir(root) if root.is_dir() else []:
        folder, step = root / name, step_of(name)
        if step is None or not folder.is_dir() or folder.is_symlink():
            continue
        try:
            complete = read_complete(folder)
        except FileNotFoundError:
            unmarked.append(folder)
            continue
        except (Damaged, OSError):  # the load says why
            complete = None
        marked.append(Found(folder, step, complete))
    return Scan(tuple(sorted(marked, key=_age, reverse=True)), tuple(sorted(unmarked)))


def _age(found: Found) -> tuple[int, int, str]:
    """By the order of saving; a damaged marker does not tell it, so its step has to."""
    if found.complete is not None:
        return (found.complete.sequence, found.step, found.folder.name)
    return (_sequence_at(found), found.step, found.folder.name)


def _sequence_at(found: Found) -> int:
    """That of the newest save of a smaller step in the same folder, so that it comes right after that."""
    best = 0
    for other in found.folder.parent.iterdir():
        step = step_of(other.name)
        if step is not None and step < found.step and (other / COMPLETE).exists():
            try:
                best = max(best, read_complete(other).sequence)
            except (Damaged, OSError):
                continue
    return best


def next_sequence(root: Path) -> int:
    return 1 + max((found.complete.sequence for found in scan(root).marked if found.complete is not None), default=0)

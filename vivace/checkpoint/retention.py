"""Which checkpoints stay: the last few and the best. The others go, but only after a newer one is complete.

Deleting begins with a renaming, so that a kill in the middle leaves nothing that looks like a checkpoint.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from vivace.checkpoint.names import UNFINISHED, trash_name
from vivace.checkpoint.owner import is_abandoned
from vivace.checkpoint.scan import Found, Scan, scan
from vivace.checkpoint.verify import looks_whole

__all__ = ["Best", "Mode", "clean_up", "obsolete", "prune"]


class Mode(Enum):
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True)
class Best:
    """Keep also the ``count`` checkpoints with the best ``metric`` of ``TrainState.metrics``."""

    metric: str
    mode: Mode = Mode.MIN
    count: int = 1


def prune(root: Path, keep: int, best: Best | None, token: str) -> list[Path]:
    """On the first rank, after a save is complete. Returns what was deleted; raises ``OSError``."""
    found = scan(root)
    gone = obsolete([one for one in found.marked if looks_whole(one.folder)], keep, best)
    for folder in gone:
        _remove(folder, token)
    _remove_unmarked(found, token)
    return gone


def obsolete(whole: Sequence[Found], keep: int, best: Best | None) -> list[Path]:
    """Of whole checkpoints, newest first. What is damaged is not here: it neither counts nor is deleted."""
    kept = {one.folder for one in whole[:keep]}
    if best is not None:
        kept |= {one.folder for one in _ranked(whole, best)[: best.count]}
    return [one.folder for one in whole if one.folder not in kept]


def _ranked(whole: Sequence[Found], best: Best) -> list[Found]:
    """Best first; of equals the newer one. One without the metric, or with a NaN, is no candidate."""

    def value(one: Found) -> float:
        return one.complete.metrics.get(best.metric, math.nan) if one.complete is not None else math.nan

    sign = 1.0 if best.mode is Mode.MIN else -1.0
    return sorted((one for one in whole if not math.isnan(value(one))), key=lambda one: sign * value(one))


def clean_up(root: Path) -> list[Path]:
    """On the first rank, before the first save: what killed saves and deletions left. Others' work is left alone."""
    gone = []
    for name in os.listdir(root) if root.is_dir() else []:
        folder, kind = root / name, UNFINISHED.fullmatch(name)
        if kind is None or folder.is_symlink() or (kind[1] == "tmp" and not is_abandoned(folder)):
            continue
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
            gone.append(folder)
    return gone


def _remove_unmarked(found: Scan, token: str) -> None:
    """A final name without a marker, from a killed save: no load takes it."""
    for folder in found.unmarked:
        if is_abandoned(folder):
            _remove(folder, token)


def _remove(folder: Path, token: str) -> None:
    away = folder.with_name(trash_name(folder.name, token))
    os.rename(folder, away)
    shutil.rmtree(away)

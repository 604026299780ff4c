"""The newest checkpoint that is whole: damaged ones on the way are named, set aside, and passed over."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from vivace.checkpoint.errors import Damaged, DamageKind, Refused, RefusedError
from vivace.checkpoint.names import aside_name
from vivace.checkpoint.ranks import Ranks
from vivace.checkpoint.scan import scan
from vivace.checkpoint.verify import Outline, verify

__all__ = ["find"]


def find(root: Path, ranks: Ranks, step: int | None = None) -> Outline | None:
    """On all ranks alike. None when nothing was ever saved here; ``RefusedError`` when nothing can be loaded."""
    marked, unmarked = ranks.from_first(_look(root, step) if ranks.is_first else None)
    if unmarked and ranks.is_first:
        _say(f"{root} has {len(unmarked)} unfinished save(s), which are not used: {', '.join(unmarked)}")
    damaged: dict[Path, Damaged] = {}
    for name in marked:
        try:
            outline = verify(root / name, ranks)
        except Damaged as error:
            if error.damage.kind is DamageKind.VERSION:  # of a newer vivace: not for us to judge, or to move
                raise RefusedError(Refused.OTHER_MODEL, f"{root / name}: {error}", (root / name,)) from error
            damaged[root / name] = error
            continue
        if damaged and ranks.is_first:
            _set_aside(damaged, outline)
        return outline
    if damaged:
        text = "; ".join(f"{folder}: {error}" for folder, error in damaged.items())
        raise RefusedError(Refused.ALL_DAMAGED, f"every checkpoint is damaged: {text}", tuple(damaged))
    if step is not None:
        raise RefusedError(Refused.ALL_DAMAGED, f"{root} has no checkpoint of step {step}")
    return None


def _look(root: Path, step: int | None) -> tuple[list[str], list[str]]:
    found = scan(root)
    marked = [one.folder.name for one in found.marked if step is None or one.step == step]
    return marked, [folder.name for folder in found.unmarked]


def _set_aside(damaged: dict[Path, Damaged], loaded: Outline) -> None:
    """Out of the way, and kept: somebody may want to look at it."""
    for folder, error in damaged.items():
        where = "left there"
        try:
            aside = aside_name(folder)
            os.rename(folder, aside)
            where = f"set aside as {aside.name}"
        except OSError:
            pass
        _say(f"{folder} is damaged ({error}): {where}; step {loaded.complete.step} is loaded instead")


def _say(text: str) -> None:
    print(f"vivace: {text}", file=sys.stderr, flush=True)

"""Flips one bit of the newest checkpoint, as a bad disk or a cosmic ray would."""

from __future__ import annotations

import os
import random
from pathlib import Path

from vivace.errors import UserError

__all__ = ["flip_a_bit"]

_CHECKPOINTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".distcp", ".npz", ".tar")
_UNFINISHED = ".tmp-"
_MOST_FILES = 100_000
_EDGE = 0.1  # share of a file at each end that is left alone: what every reader notices


def flip_a_bit(folder: Path, dice: random.Random) -> str:
    """In the newest checkpoint file below ``folder``, or in one that lies beside it. Returns which, in words."""
    files = _files(folder)
    if not files:
        ends = ", ".join(_CHECKPOINTS)
        raise UserError(f"{folder} has no checkpoint to damage (files that end in {ends})", hint="--folder FOLDER")
    newest = max(files, key=lambda path: path.stat().st_mtime_ns)
    beside = (
        sorted(path for path in files if path.parent == newest.parent) if _is_a_checkpoint(newest.parent) else [newest]
    )
    (path,) = dice.choices(beside, [path.stat().st_size for path in beside])
    size = path.stat().st_size
    place = dice.randrange(int(size * _EDGE), max(int(size * (1 - _EDGE)), int(size * _EDGE) + 1))
    bit = dice.randrange(8)
    with path.open("r+b") as file:
        file.seek(place)
        (value,) = file.read(1)
        file.seek(place)
        file.write(bytes([value ^ (1 << bit)]))
    return f"{path}, bit {bit} of byte {place:,}"


def _is_a_checkpoint(folder: Path) -> bool:
    """A folder that is one checkpoint, as DCP and vivace write it: its files belong together."""
    return (folder / ".metadata").exists()


def _files(folder: Path) -> list[Path]:
    found: list[Path] = []
    for place, _folders, names in os.walk(folder):
        if _UNFINISHED in os.path.basename(place):  # a save that the kill interrupted: nobody would load it
            continue
        found += [Path(place, name) for name in names if name.endswith(_CHECKPOINTS)]
        if len(found) > _MOST_FILES:
            raise UserError(
                f"{folder} has more than {_MOST_FILES:,} files", hint="--folder FOLDER, the one with checkpoints"
            )
    return [path for path in found if path.is_file() and not path.is_symlink() and path.stat().st_size > 0]

"""What can happen to the files of a checkpoint. Shared by the tests and ``benchmarks/checkpoint_damage.py``."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from vivace.checkpoint.manifest import Complete, read_complete
from vivace.checkpoint.names import COMPLETE, INDEX
from vivace.checkpoint.sums import sum_of_file


class Evil:
    """Unpickling it creates a file."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple:
        return (os.mkdir, (str(self.proof),))


def files_of(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(path for path in folder.glob(pattern) if path.is_file())


def flip_bit(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def flipped(pattern: str) -> Callable[[Path, random.Random], str]:
    def damage(folder: Path, dice: random.Random) -> str:
        path = dice.choice([one for one in files_of(folder, pattern) if one.stat().st_size])
        bit = dice.randrange(8 * path.stat().st_size)
        flip_bit(path, bit)
        return f"{path.name} bit {bit}"

    return damage


def truncated(pattern: str) -> Callable[[Path, random.Random], str]:
    def damage(folder: Path, dice: random.Random) -> str:
        path = dice.choice([one for one in files_of(folder, pattern) if one.stat().st_size])
        size = dice.randrange(path.stat().st_size)
        os.truncate(path, size)
        return f"{path.name} to {size} bytes"

    return damage


def zeroed(folder: Path, dice: random.Random) -> str:
    path = dice.choice([one for one in files_of(folder, "*.distcp") if one.stat().st_size])
    path.write_bytes(b"\0" * path.stat().st_size)
    return path.name


def missing(pattern: str) -> Callable[[Path, random.Random], str]:
    def damage(folder: Path, dice: random.Random) -> str:
        path = dice.choice(files_of(folder, pattern))
        path.unlink()
        return path.name

    return damage


def mixture(folder: Path, dice: random.Random) -> str:
    """A shard of the checkpoint before, under the same name."""
    older = sorted(path for path in folder.parent.iterdir() if path.is_dir())[0]
    path = dice.choice([one for one in files_of(folder, "*.distcp") if one.stat().st_size])
    shutil.copy(older / path.name, path)
    return path.name


def mixture_with_manifest(folder: Path, dice: random.Random) -> str:
    """A whole rank of the checkpoint before, manifest included."""
    older = sorted(path for path in folder.parent.iterdir() if path.is_dir())[0]
    for path in [*files_of(folder, "__0_*"), folder / "state-00000.pt", folder / "manifest-00000.json"]:
        shutil.copy(older / path.name, path)
    return "rank 0"


def evil_index(folder: Path, dice: random.Random) -> str:
    """From somebody who can compute a checksum: all sums are right."""
    (folder / INDEX).write_bytes(pickle.dumps(Evil(folder.parent / "executed")))
    bless(folder)
    return INDEX


def evil_state(folder: Path, dice: random.Random) -> str:
    torch.save({"step": 2, "more": Evil(folder.parent / "executed")}, folder / "state-00000.pt")
    bless(folder)
    return "state-00000.pt"


def evil_value(folder: Path, dice: random.Random) -> str:
    """In the place of a plain value inside a shard: a file of its own, which the index points to."""
    data = io.BytesIO()
    torch.save(Evil(folder.parent / "executed"), data)
    metadata = pickle.loads((folder / INDEX).read_bytes())
    place = next(place for index, place in metadata.storage_data.items() if index.fqn == "note")
    shard = folder / place.relative_path
    place.offset, place.length = shard.stat().st_size, len(data.getvalue())
    shard.write_bytes(shard.read_bytes() + data.getvalue())
    (folder / INDEX).write_bytes(pickle.dumps(metadata))
    bless(folder)
    return shard.name


def bless(folder: Path) -> None:
    """Write the manifests and the marker anew, with the sums of what is there."""
    for path in folder.glob("manifest-*.json"):
        manifest = json.loads(path.read_text())
        for file in manifest["files"]:
            if (folder / file["name"]).exists():
                file.update(vars(sum_of_file(folder / file["name"])))
        path.write_text(json.dumps(manifest))
    before = read_complete(folder)
    files = tuple(sum_of_file(folder / file.name) for file in before.files)
    after = Complete(**{**vars(before), "files": files})
    (folder / COMPLETE).write_bytes(after.to_bytes())


DAMAGES: dict[str, Callable[[Path, random.Random], str]] = {
    "bit flip in a shard": flipped("*.distcp"),
    "bit flip in the index": flipped(INDEX),
    "bit flip in a manifest": flipped("manifest-*"),
    "bit flip in a rank's state": flipped("state-*"),
    "bit flip in the marker": flipped(COMPLETE),
    "truncated shard": truncated("*.distcp"),
    "truncated index": truncated(INDEX),
    "truncated manifest": truncated("manifest-*"),
    "truncated marker": truncated(COMPLETE),
    "shard of zeros": zeroed,
    "missing shard": missing("*.distcp"),
    "missing index": missing(INDEX),
    "missing manifest": missing("manifest-*"),
    "missing rank's state": missing("state-*"),
    "missing marker": missing(COMPLETE),
    "shard of another step": mixture,
    "rank of another step": mixture_with_manifest,
}

"""Which bit rots: one of the newest checkpoint that somebody would load."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from vivace.chaos.rotting import flip_a_bit
from vivace.errors import UserError


def write(path: Path, age_s: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(1000))
    os.utime(path, (10**9 - age_s, 10**9 - age_s))
    return path


def test_one_bit_of_the_newest_and_nothing_else(tmp_path: Path):
    older, newer = write(tmp_path / "a.pt", 60), write(tmp_path / "b.pt", 30)
    others = [write(tmp_path / "log.txt", 0), write(tmp_path / "step-00000009.tmp-1f" / "x.distcp", 0)]
    said = flip_a_bit(tmp_path, random.Random(1))
    assert str(newer) in said
    assert sum(bin(byte).count("1") for byte in newer.read_bytes()) == 1
    assert all(path.read_bytes() == bytes(1000) for path in (older, *others))


def test_any_file_of_a_checkpoint_that_is_a_folder(tmp_path: Path):
    folder = tmp_path / "step-00000005"
    files = [write(folder / name, age) for name, age in (("a.distcp", 9), ("b.distcp", 5), (".metadata", 1))][:2]
    for seed in range(20):
        flip_a_bit(tmp_path, random.Random(seed))
    assert all(path.read_bytes() != bytes(1000) for path in files)


def test_nothing_to_rot(tmp_path: Path):
    with pytest.raises(UserError, match="has no checkpoint to damage"):
        flip_a_bit(tmp_path, random.Random(1))

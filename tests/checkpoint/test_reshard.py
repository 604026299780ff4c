"""Saved by some ranks, loaded by others: the training goes on as one that nobody moved."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint.lives import Life, losses

SHARDED = Path(__file__).parent / "sharded.py"


def train(folder: Path, steps: int, world: int) -> str:
    ended = Life(folder, steps, world, script=SHARDED).wait()
    assert ended.codes == [0] * world, ended.err
    return ended.err


def numbers(folder: Path) -> list[float]:
    lines = [line.split() for line in losses(folder)]
    assert [int(step) for step, _loss in lines] == list(range(len(lines)))
    return [float(loss) for _step, loss in lines]


def test_three_ranks_then_two_then_one(tmp_path: Path):
    train(tmp_path / "alone", 9, 1)
    train(tmp_path / "moved", 3, 3)
    assert "was saved by 3 ranks, loaded by 2" in train(tmp_path / "moved", 6, 2)
    train(tmp_path / "moved", 9, 1)
    assert numbers(tmp_path / "moved") == pytest.approx(numbers(tmp_path / "alone"), rel=1e-12)

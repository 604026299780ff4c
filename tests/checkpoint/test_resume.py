"""Killed and started again: the losses are those of a training that nobody disturbed, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint.lives import Life, by_step, kill_again_and_again, losses

from vivace.checkpoint import Phase

STEPS = 30


@pytest.mark.parametrize(("world", "kills", "options"), [(1, 5, ()), (2, 3, ("--background",))])
def test_losses_after_kills_are_those_of_an_undisturbed_run(tmp_path: Path, world: int, kills: int, options: tuple):
    whole = Life(tmp_path / "whole", STEPS, world, options).wait()
    assert whole.codes == [0] * world, whole.err
    expected = by_step(losses(tmp_path / "whole"))
    assert sorted(expected) == list(range(STEPS))
    done, ends = kill_again_and_again(tmp_path / "killed", STEPS, world, kills, seed=world, options=options)
    assert ends[-1].codes == [0] * world, ends[-1].err
    assert by_step(losses(tmp_path / "killed")) == expected
    assert len(done) >= 2
    for one in done:
        if one.resumed is not None and one.reached >= 0:  # no more is lost than since the last save
            assert 0 <= one.reached + 1 - one.resumed <= 2 * 5, one


@pytest.mark.parametrize(("rank", "phase"), [(0, Phase.INDEX), (0, Phase.RENAMED), (1, Phase.WRITING)])
def test_a_rank_killed_while_it_saves(tmp_path: Path, rank: int, phase: Phase):
    ended = Life(tmp_path, STEPS, 2, ("--die", f"{rank}:{phase.value}:15")).wait()
    assert ended.codes[rank] == -9, ended.err
    again = Life(tmp_path, STEPS, 2).wait()
    assert again.codes == [0, 0], again.err
    steps = [int(line.split()[0]) for line in losses(tmp_path) if line != "done"]
    assert steps == [*range(15), *range(10, STEPS)]
    assert all(len(texts) == 1 for texts in by_step(losses(tmp_path)).values())
    assert not [path.name for path in (tmp_path / "checkpoints").iterdir() if "tmp" in path.name]

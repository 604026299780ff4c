"""A split training that is told to stop: one agreed save, one exit code, and the same bits after it goes on."""

from __future__ import annotations

import errno
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import Done
from forked.process import PYTHON

from vivace.preemption import EXIT_INTERRUPTED, checkpoint, save_atomically
from vivace.preemption.job_files import is_first_rank
from vivace.scale.launcher import _HIDDEN

TRAINING = Path(__file__).parent / "stopped" / "training.py"
SAVED_EVERY = 5


def losses(out: str) -> dict[int, str]:
    return {int(line.split()[1]): line.split()[3] for line in out.splitlines() if line.startswith("step")}


def test_a_signal_to_one_rank_stops_all_at_one_step_and_nothing_differs_later(
    vivace: Callable[..., Done], tmp_path: Path
):
    """Goes on from the periodic save before: the steps in between are trained twice, in two starts."""

    def train(file: str, *words: object) -> Done:
        command = (PYTHON, str(TRAINING), file, *map(str, words))
        return vivace("run", "--ranks", "2", "--with", "zero1", "--no-prove", "-o", file[0], "--", *command)

    stopped = train("a.pt", 100, SAVED_EVERY + 2, 1, int(signal.SIGUSR1))
    assert stopped.code == EXIT_INTERRUPTED, stopped.err
    assert "stopped by a signal to another rank" in stopped.err
    assert "ended with" not in stopped.err
    trained = losses(stopped.out)
    end = max(trained) + 1
    assert SAVED_EVERY + 2 < end < 2 * SAVED_EVERY
    shutil.copy(tmp_path / "a.pt.1", tmp_path / "b.pt")
    again = train("b.pt", end)
    assert again.code == 0, again.err
    assert losses(again.out) == {step: trained[step] for step in range(SAVED_EVERY, end)}
    one, other = (torch.load(tmp_path / name, weights_only=True) for name in ("a.pt", "b.pt"))
    assert one["step"] == other["step"] == end
    assert all(torch.equal(one["net"][name], value) for name, value in other["net"].items())


class Ranks:
    """Another rank that answers with what it was made with."""

    def __init__(self, rank: int, other: int) -> None:
        self.rank, self.other = rank, other

    def ask_most(self, value: int) -> Callable[[], int]:
        return lambda: max(value, self.other)

    def wait_for_all(self) -> None:
        raise AssertionError("not asked for here")


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_saves_and_all_fail_together(rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkpoint, "split_ranks", lambda: Ranks(rank, 0))
    save_atomically({"step": 1}, tmp_path / "last.pt")
    assert (tmp_path / "last.pt").exists() == (rank == 0)
    monkeypatch.setattr(checkpoint, "split_ranks", lambda: Ranks(rank, errno.ENOSPC))
    with pytest.raises(OSError, match="No space left") as caught:
        save_atomically({"step": 2}, tmp_path / "last.pt")
    assert caught.value.errno == errno.ENOSPC


def test_a_split_rank_knows_that_it_is_not_the_first_although_the_script_does_not():
    assert {"RANK", "SLURM_PROCID"} <= set(_HIDDEN)
    assert not is_first_rank({"VIVACE_RANK": "1"})
    assert is_first_rank({"VIVACE_RANK": "0", "RANK": "3"})
    assert not is_first_rank({"RANK": "", "SLURM_PROCID": "2"})

"""``vivace train`` that is killed, stopped, moved to another layout: it goes on as if nothing had happened."""

from __future__ import annotations

import csv
import os
import signal
from pathlib import Path

import pytest
import torch.distributed as dist

from benchmarks.forked_ranks import RanksFailed, on_ranks
from vivace.errors import UserError
from vivace.records.layout import parse_layout
from vivace.train import loop
from vivace.train.saving import TrainCheckpoints
from vivace.train.settings import TrainSettings, with_changes
from vivace.train.training import Training

SMALL = (
    "data.seq_len=8", "sizes.layers=2", "sizes.hidden=16", "sizes.vocab=32", "log_every=1", "steps=12",
    "engine.precision=fp64", "checkpoints.every_steps=2", "optim.lr=0.01",
)  # fmt: skip


def settings_for(layout: str, folder: Path, *changes: str) -> TrainSettings:
    where = f"checkpoints.folder={folder / 'checkpoints'}"
    return with_changes(TrainSettings(layout=parse_layout(layout)), (*SMALL, where, *changes))


def train(settings: TrainSettings, folder: Path, blow: int | None = None, at: int = 0) -> None:
    """On the ranks of the layout; the signal ``blow`` comes to the last rank before step ``at``."""
    folder.mkdir(parents=True, exist_ok=True)

    def work() -> None:
        take = Training.take_step

        def struck(training: Training):
            if blow is not None and training.step == at and dist.get_rank() == dist.get_world_size() - 1:
                os.kill(os.getpid(), blow)
            return take(training)

        Training.take_step = struck  # type: ignore[method-assign]
        loop.train(settings, folder if dist.get_rank() == 0 else None, TrainCheckpoints(settings))

    on_ranks(settings.layout.gpus, work)


def losses(folder: Path) -> dict[int, set[str]]:
    """By step, all that were ever written."""
    found: dict[int, set[str]] = {}
    with (folder / "metrics.csv").open() as file:
        for row in csv.DictReader(file):
            if row["step"] != "step":  # a second start may write the head again
                found.setdefault(int(row["step"]), set()).add(row["loss"])
    return found


@pytest.mark.parametrize("background", ["true", "false"])
def test_a_killed_training_goes_on_bit_for_bit(tmp_path: Path, background: str):
    change = f"checkpoints.background={background}"
    train(settings_for("dp2,mb4", tmp_path / "whole", change), tmp_path / "whole")
    settings = settings_for("dp2,mb4", tmp_path / "killed", change)
    with pytest.raises(RanksFailed):
        train(settings, tmp_path / "killed", signal.SIGKILL, at=7)
    train(settings, tmp_path / "killed")
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    assert sorted(losses(tmp_path / "whole")) == list(range(1, 13))


def test_each_start_may_have_another_layout(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    train(settings_for("dp1,mb8", tmp_path / "whole"), tmp_path / "whole")
    for layout, until in (("fs2,mb4", 2), ("tp2,mb8", 4), ("pp2,mb2", 6)):  # told to stop, it saves and stops
        train(settings_for(layout, tmp_path / "moved"), tmp_path / "moved", signal.SIGTERM, at=until)
    train(settings_for("dp1,mb8", tmp_path / "moved"), tmp_path / "moved")
    whole, moved = losses(tmp_path / "whole"), losses(tmp_path / "moved")
    assert sorted(moved) == list(range(1, 13))
    for step, texts in moved.items():
        (expected,) = whole[step]
        assert [float(text) for text in texts] == pytest.approx([float(expected)] * len(texts), rel=1e-10)
    assert capfd.readouterr().out.count("goes on from step") == 3


def test_other_data_or_another_model_are_refused(tmp_path: Path):
    train(settings_for("dp1,mb8", tmp_path, "steps=2"), tmp_path)
    for change, says in (("global_batch=16", "global_batch=8"), ("sizes.hidden=32", "with the shape")):
        layout = "dp1,mb16" if "batch" in change else "dp1,mb8"
        with pytest.raises((UserError, RanksFailed), match=says):
            train(settings_for(layout, tmp_path, "steps=2", change), tmp_path)

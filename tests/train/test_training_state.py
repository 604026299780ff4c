"""The state of a training goes through torch.distributed.checkpoint to any other layout, and training goes on alike."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from benchmarks.forked_ranks import on_ranks
from vivace.records.layout import parse_layout
from vivace.train.settings import TrainSettings, with_changes
from vivace.train.training import Training, build

SMALL = (
    "engine.precision=fp64", "data.seq_len=8", "sizes.hidden=16", "sizes.vocab=32", "sizes.layers=4", "optim.lr=0.01",
    "steps=4", "sizes.tied=true",
)  # fmt: skip
SAVED_AFTER = 2


def settings_on(layout: str) -> TrainSettings:
    return with_changes(TrainSettings(layout=parse_layout(layout)), SMALL)


def norms(training: Training, until: int) -> list[float]:
    found = []
    while training.step < until:
        found.append(training.take_step()[1].item())
    return found


def save(layout: str, folder: Path) -> list[float]:
    """Two steps, a checkpoint, two more: the gradients' norms of the last two."""

    def work() -> list[float]:
        training = build(settings_on(layout))
        norms(training, SAVED_AFTER)
        dcp.save(training.state_dict(), checkpoint_id=folder)
        return norms(training, training.settings.steps)

    found: list[float] = on_ranks(parse_layout(layout).gpus, work)[0]
    return found


def resume(layout: str, folder: Path) -> list[float]:
    def work() -> list[float]:
        training = build(settings_on(layout))
        state = training.state_dict()
        dcp.load(state, checkpoint_id=folder)
        training.load_state_dict(state)
        assert training.step == SAVED_AFTER
        dist.barrier()
        return norms(training, training.settings.steps)

    found: list[float] = on_ranks(parse_layout(layout).gpus, work)[0]
    return found


@pytest.mark.parametrize(("before", "after"), [("fs2", "pp2,v2,zbv"), ("pp2", "dp2"), ("tp2", "dp1,mb4")])
def test_a_checkpoint_goes_on_with_another_layout(before: str, after: str, tmp_path: Path):
    uninterrupted = save(before, tmp_path)
    assert resume(after, tmp_path) == pytest.approx(uninterrupted, rel=1e-9)

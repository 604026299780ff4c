"""The loop with ranks that die, fail, stop or lose their numbers: the others end, and the right one is named."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch.distributed as dist

from benchmarks.forked_ranks import RanksFailed, on_ranks
from vivace.records.layout import parse_layout
from vivace.records.trained import Trained
from vivace.train import loop
from vivace.train.settings import TrainSettings, with_changes
from vivace.train.training import Training

SMALL = ("data.seq_len=8", "sizes.layers=2", "sizes.hidden=16", "sizes.vocab=32", "log_every=1", "steps=1000")
WRONG_STEP, WRONG_RANK = 3, 1


def train_with_a_fault(fault: str, *changes: str) -> RanksFailed:
    settings = with_changes(TrainSettings(layout=parse_layout("dp2,mb4")), (*SMALL, *changes))

    def work() -> None:
        take = Training.take_step

        def faulty(training: Training):
            if (training.step, dist.get_rank()) == (WRONG_STEP, WRONG_RANK):
                if fault == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if fault == "hang":
                    time.sleep(3600)
                if fault == "error":
                    raise ValueError("a bad sample")
                if fault == "nan":
                    loss, norm = take(training)
                    return loss * float("nan"), norm
            return take(training)

        Training.take_step = faulty  # type: ignore[method-assign]
        loop.train(settings, None)

    with pytest.raises(RanksFailed) as caught:
        on_ranks(2, work)
    return caught.value


def test_a_killed_rank_is_named_and_ends_the_others(capfd: pytest.CaptureFixture[str]):
    failed = train_with_a_fault("kill")
    assert failed.exit_codes == [1, -signal.SIGKILL]
    assert "rank 1 (" in (said := capfd.readouterr().err)
    assert "is gone: it ended without an error of its own" in said


def test_the_rank_that_failed_first_is_named(capfd: pytest.CaptureFixture[str]):
    failed = train_with_a_fault("error")
    assert f"vivace: rank 1 failed first, in step {WRONG_STEP}" in capfd.readouterr().err
    assert "ValueError: a bad sample" in failed.errors[0]


def test_a_hung_step_prints_the_stacks_of_all_ranks(capfd: pytest.CaptureFixture[str]):
    failed = train_with_a_fault("hang", "watch.hung_step_s=8")
    assert failed.exit_codes == [1, 1]
    said = capfd.readouterr().err
    assert "stacks of rank 0:" in said
    assert "stacks of rank 1:" in said
    assert "in faulty" in said


def test_a_loss_that_is_no_number_stops_all_ranks_with_the_name_of_one():
    failed = train_with_a_fault("nan")
    assert len(failed.errors) == 2
    assert all(f"the loss of rank 1 is not finite in step {WRONG_STEP + 1}" in error for error in failed.errors)


def test_metrics_and_record_of_a_training(tmp_path: Path):
    settings = with_changes(TrainSettings(layout=parse_layout("pp2")), (*SMALL, "steps=4", "log_every=2"))
    on_ranks(2, lambda: loop.train(settings, tmp_path if dist.get_rank() == 0 else None) and None)
    rows = (tmp_path / loop.METRICS).read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["step", "2", "4"]
    record = Trained.load(tmp_path / loop.RECORD)
    assert (record.steps, record.processes, record.global_batch, record.tokens_per_sample) == (4, 2, 8, 8)
    assert record.final_loss == float(rows[-1].split(",")[1])
    block = 4 * 16 * 16 + 2 * 16 * 64 + 2 * 16
    assert record.parameters == 2 * 32 * 16 + 2 * block + 16

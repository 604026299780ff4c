"""Faults in real jobs, and what the record says of them."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from conftest import Done

from benchmarks.forked_ranks import on_ranks
from vivace.records.chaos import Chaos
from vivace.records.layout import parse_layout
from vivace.train import loop
from vivace.train.settings import TrainSettings, with_changes

SCRIPTS = Path(__file__).parent / "scripts"
LOOP = Path(__file__).parents[1] / "checkpoint" / "loop.py"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def chaos(vivace_here: Callable[..., Done], tmp_path: Path) -> Callable[..., Chaos]:
    """``vivace chaos --json --fault FAULT OPTIONS -- COMMAND``; the record must be readable again."""

    def run(fault: str, *options: str, command: list[str], code: int = 0) -> Chaos:
        words = ("chaos", "--json", "--fault", fault, *options, "--", *command)
        done = vivace_here(*words, KINETO_LOG_LEVEL="99", PYTHONUNBUFFERED="1")
        assert done.code == code, done.err
        record = Chaos.from_json(done.out)
        assert Chaos.load(Path(record.folder) / "chaos.json") == record
        return record

    return run


def python(script: str | Path, *arguments: str) -> list[str]:
    return [sys.executable, str(SCRIPTS / script), *arguments]


def test_a_killed_script_is_started_again_and_the_log_says_what_was_lost(chaos: Callable[..., Chaos]):
    found = chaos("kill", "--step", "13", command=python("plain.py"))
    assert (found.injected_step, found.outcome, found.detected_by) == (13, "resumed", "its end")
    assert [life.exit_code for life in found.lives] == [137, 0]
    assert [life.steps for life in found.lives] == [13, 20]
    assert (found.steps_lost, found.steps_lost_from) == (2, "the log")  # 10 to 12, of which 12 was not printed
    assert found.detected_s is not None
    assert found.detected_s >= 0


def test_nan_is_noticed_by_who_prints_the_loss(chaos: Callable[..., Chaos]):
    found = chaos("nan", "--step", "5", command=python("plain.py"))
    assert (found.outcome, found.detected_by, found.lives[0].exit_code) == ("survived", "a line of its output", 0)
    assert found.detected_line == "step 6 loss nan error nan"
    silent = chaos("nan", "--step", "5", command=python("plain.py", "quiet"))
    assert (silent.outcome, silent.detected_by, silent.detected_s) == ("unnoticed", "nobody", None)


def test_a_full_disk_that_is_played(chaos: Callable[..., Chaos]):
    found = chaos("disk-full", "--step", "12", command=python("plain.py"))
    assert (found.outcome, found.lives[0].steps, found.lives[0].exit_code) == ("ended", 15, 1)
    assert "Traceback" in str(found.detected_line)
    assert "RLIMIT_FSIZE" in found.notes[0]
    log = Path(found.folder, "life-0", "stderr.log").read_text()
    assert "File too large" in log


def test_a_flipped_bit_in_a_checkpoint_of_ours_is_found(chaos: Callable[..., Chaos], tmp_path: Path):
    (tmp_path / "run").mkdir()
    command = [sys.executable, str(LOOP), str(tmp_path / "run"), "30"]
    found = chaos("bit-rot", "--step", "13", "--seed", "4", "--folder", "run", command=command)
    assert (found.outcome, found.steps_lost, found.steps_lost_from) == ("resumed", 8, "vivace.checkpoint")
    assert [life.resumed_step for life in found.lives] == [None, 5]
    assert [life.steps for life in found.lives] == [13, 25]  # without the step that DCP makes to load an optimizer
    assert "step-00000010" in str(found.target)
    assert "step-00000010 is damaged" in str(found.lives[1].said)


def test_a_flipped_bit_in_a_plain_file_is_not(chaos: Callable[..., Chaos]):
    """torch.load reads another number without a word: that is why there is vivace.checkpoint."""
    found = chaos("bit-rot", "--step", "13", "--seed", "4", "--folder", ".", command=python("plain.py"))
    assert (found.outcome, found.lives[1].exit_code) == ("resumed", 0)
    assert "damaged" not in Path(found.folder, "life-1", "stderr.log").read_text()


def test_a_slow_rank_is_named(chaos: Callable[..., Chaos]):
    options = ("--rank", "1", "--step", "4", "--delay", "0.3", "--slow-steps", "4")
    found = chaos("slow", *options, command=python("ranks.py", "20"))
    assert (found.outcome, found.detected_by) == ("unnoticed", "nobody")
    assert found.straggler is not None
    assert found.straggler.rank == 1
    assert found.straggler.late_ms > 250 > found.straggler.others_late_ms


def test_a_stopped_rank_hangs_the_job(chaos: Callable[..., Chaos]):
    options = ("--rank", "1", "--step", "3", "--patience", "4", "--restarts", "0")
    found = chaos("stop", *options, command=python("ranks.py", "8"))
    assert (found.outcome, found.detected_by, found.lives[0].exit_code) == ("hung", "nobody", None)
    assert found.lives[0].steps == 3
    assert "--patience" in found.notes[0]


def test_a_dead_worker_of_a_loader_ends_the_training_by_torch_itself(chaos: Callable[..., Chaos]):
    found = chaos("worker", "--step", "13", command=python("loading.py"))
    assert (found.outcome, found.detected_by) == ("resumed", "a line of its output")
    assert [life.exit_code for life in found.lives] == [1, 0]
    assert "Traceback" in str(found.detected_line)  # torch says that it was killed, or that its pipe broke
    assert found.steps_lost is not None
    assert found.steps_lost <= 9  # saved every 5; torch notices within a few steps
    none = chaos("worker", "--step", "5", command=python("plain.py", "quiet"), code=2)
    assert "rank 0 has no DataLoader with workers" in none.notes[0]


def test_a_hung_step_of_vivace_train_prints_the_stacks_of_all_ranks(chaos: Callable[..., Chaos], tmp_path: Path):
    command = [sys.executable, str(ROOT / "benchmarks" / "chaos_train.py"), str(tmp_path / "saved"), "8"]
    found = chaos("hang", "--rank", "1", "--step", "3", "--restarts", "0", command=command)
    assert (found.outcome, found.detected_by, found.lives[0].exit_code) == ("ended", "a line of its output", 1)
    assert found.detected_s is not None
    assert found.detected_s > 7.5
    log = Path(found.folder, "life-0", "stderr.log").read_text()
    assert "stacks of rank 0" in log
    assert "stacks of rank 1" in log
    assert "_wait_for_ever" in log  # where it hangs


@pytest.mark.slow
def test_torchrun_starts_a_killed_rank_again_and_the_losses_are_those_of_an_undisturbed_run(
    chaos: Callable[..., Chaos], tmp_path: Path
):
    """Elastic restart: nobody but torchrun starts anything again, and vivace train goes on from its checkpoint."""
    changes = ("data.seq_len=8", "sizes.layers=1", "sizes.hidden=16", "sizes.vocab=32", "log_every=1", "steps=8",
               "checkpoints.every_steps=2", "checkpoints.background=false")  # fmt: skip
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    train = ["-m", "vivace", "train", "gpt", "--layout", "dp2", "--checkpoints", "saved"]
    command = [*torchrun, *train, *(word for change in changes for word in ("--set", change))]
    found = chaos("kill", "--rank", "1", "--step", "5", "--restarts", "0", command=command)
    assert (found.outcome, [life.exit_code for life in found.lives]) == ("survived", [0])
    assert (found.steps_lost, found.steps_lost_from) == (1, "vivace.checkpoint")
    assert "is gone" in str(found.detected_line)
    settings = with_changes(TrainSettings(layout=parse_layout("dp2,mb4")), changes[:-2])
    on_ranks(2, lambda: loop.train(settings, tmp_path if dist.get_rank() == 0 else None))
    undisturbed = _losses(tmp_path / "metrics.csv")
    assert sorted(undisturbed) == list(range(1, 9))
    starts = [_losses(path) for path in sorted(tmp_path.glob("vivace-runs/gpt-*/metrics.csv"))]
    assert [min(start) for start in starts] == [1, 5]  # the second one goes on after step 4
    assert max(starts[1]) == 8
    assert all(start[step] == undisturbed[step] for start in starts for step in start)


def _losses(metrics: Path) -> dict[int, str]:
    """Bit for bit: as they were written."""
    with metrics.open() as file:
        return {int(row["step"]): row["loss"] for row in csv.DictReader(file)}


def test_a_command_without_torch_can_be_killed_by_the_clock(chaos: Callable[..., Chaos]):
    found = chaos("kill", "--after", "0.5", "--restarts", "0", command=["sleep", "60"])
    assert (found.outcome, found.lives[0].exit_code) == ("ended", 137)
    assert "sleep" in str(found.target)
    other = chaos("kill", "--step", "1", command=["true"], code=2)
    assert other.outcome == "not injected"
    assert "no step of a torch optimizer was seen" in other.notes[0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--rank", "5", "--step", "2"), "there is no rank 5, only 0"),
        (("--rank", "0", "--step", "99"), "rank 0 made 30 steps, and it was to come after step 99"),
    ],
)
def test_a_fault_that_cannot_come(chaos: Callable[..., Chaos], options: tuple, says: str):
    found = chaos("kill", *options, command=python("plain.py", "quiet"), code=2)
    assert (found.injected, found.outcome, len(found.lives)) == (False, "not injected", 1)
    assert says in found.notes[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--fault", "kill"), "no command to disturb"),
        (("--", "true"), "which fault?"),
        (("--fault", "bit-rot", "--", "true"), "bit-rot needs to know where the job saves"),
        (("--fault", "nan", "--after", "3", "--", "true"), "for kill, stop only"),
        (("--fault", "kill", "--patience", "0", "--", "true"), "--patience must be above 0"),
        (("--fault", "kill", "--", "no such command"), "command not found"),
    ],
)
def test_what_is_refused(vivace_here: Callable[..., Done], words: tuple, says: str):
    done = vivace_here("chaos", *words)
    assert done.code == 2
    assert says in done.err


def test_a_large_disk_is_not_filled(vivace_here: Callable[..., Done], tmp_path: Path, monkeypatch: Any):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=2**40))
    done = vivace_here("chaos", "--fault", "disk-full", "--folder", ".", "--", "true")
    assert "vivace fills small disks only" in done.err


def test_the_table(vivace_here: Callable[..., Done]):
    done = vivace_here(
        "chaos", "-q", "--fault", "kill", "--step", "13", "--", *python("plain.py"), KINETO_LOG_LEVEL="99"
    )
    text = " ".join(done.out.split())
    assert "kill: SIGKILL, rank 0, after step 13" in text
    assert "outcome it ended, and went on when it was started again" in text
    assert "steps lost 2 (from the log)" in text
    assert json.loads(next(done.runs.glob("*/chaos.json")).read_text())["outcome"] == "resumed"

"""``vivace train``: what a user types, in real processes."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

from benchmarks.forked_ranks import outcomes
from vivace.records.layout import Layout
from vivace.records.trained import Trained
from vivace.train.settings import TrainSettings

SMALL = [
    word
    for change in ("data.seq_len=8", "sizes.layers=2", "sizes.hidden=16", "sizes.vocab=32", "log_every=1")
    for word in ("--set", change)
]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "vivace", "train", *words, "-o", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)


def losses(folder: Path) -> list[float]:
    with open(folder / "metrics.csv", newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.mark.slow
def test_two_processes_print_and_keep_what_one_does(tmp_path: Path):
    split = run(tmp_path, "gpt", "--steps", "3", "--layout", "tp2", *SMALL)
    assert split.returncode == 0, split.stderr
    assert "layout      tp2,mb8: 2 processes on 1 node" in split.stdout
    assert split.stdout.count("step 3/3") == 1
    settings = TrainSettings.load(tmp_path / "gpt-001" / "settings.json")
    assert settings.layout == Layout(tensor=2, sequence_parallel=True, micro_batch=8)
    assert Trained.load(tmp_path / "gpt-001" / "trained.json").processes == 2
    (alone,) = outcomes(1, [settings.model_copy(update={"layout": Layout(micro_batch=8)})])
    assert losses(tmp_path / "gpt-001") == pytest.approx(alone.losses, rel=1e-5)


def test_what_cannot_run_is_refused_before_a_process_starts(tmp_path: Path, vivace_here: Callable[..., Done]):
    for words, reason, hint in (
        (["gpt", "--layout", "dp3,tp2", "--ranks", "8"], "needs 6 processes, and there are 8", "dp4,tp2"),
        (["resnet18", "--layout", "tp2"], "it has no tp plan", "dp2"),
        (["bert"], "no recipe or model called 'bert'", "models are gpt"),
        (["gpt", "--set", "optim.lrr=1"], "no setting 'optim.lrr'", "did you mean lr?"),
        (["gpt", "--layout", "xy3"], "not known: xy3", "dp2 replicas"),
    ):
        done = vivace_here("train", *words)
        assert done.code == 2
        assert reason in done.err
        assert hint in done.err
    assert not (tmp_path / "vivace-runs").exists()


def test_measure_tells_communication_by_dimension_of_the_layout(tmp_path: Path):
    """Context ranks gather keys and values, and average gradients over the same two processes: told apart."""
    train = [sys.executable, "-m", "vivace", "train", "gpt", "--layout", "cp2", "--steps", "200", *SMALL]
    options = ["--json", "--steps", "6", "--no-profile", "-o", str(tmp_path)]
    command = [sys.executable, "-m", "vivace", "measure", *options, "--", *train, "-o", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    found = {one["dimension"]: one for one in record["exchanges"]}
    assert set(found) == {"all ranks", "context", "data"}  # the first: the losses, for the log of every step
    assert found["context"]["calls_per_step"] == 4  # per layer: gathered on the way there, scattered on the way back
    exposed = sum(one["exposed_ms_per_step"] for one in found.values())
    assert exposed == pytest.approx(record["phases_ms"]["communication"]["mean"], rel=1e-3)

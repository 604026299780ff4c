"""From a plan to the job that carries it out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from vivace.launch.planned import planned
from vivace.records.plan import Plan


def make_plan(vivace_here: Callable, *words: str) -> None:
    done = vivace_here(
        "plan", "llama-3-8b", "--cluster", "jean-zay-h100", "--gpus", "64", "--save", "plan.json", *words
    )
    assert done.code == 0, done.err


def test_cluster_gpus_and_time_come_from_the_plan(vivace_here: Callable, tmp_path: Path):
    make_plan(vivace_here, "--tokens", "1e11")
    plan = Plan.load(tmp_path / "plan.json")
    assert plan.run is not None
    wanted = planned(plan)
    assert (wanted.cluster, wanted.gpus) == ("jean-zay-h100", 64)
    assert wanted.seconds is not None
    assert plan.run.days.estimate * 86_400 < wanted.seconds <= plan.run.days.high * 86_400 + 1
    script = vivace_here("submit", "--plan", "plan.json", "--dry-run", "--", "python", "train.py").out
    assert "#SBATCH --nodes=16" in script
    assert "#SBATCH --gres=gpu:4" in script
    assert "#SBATCH --constraint=h100" in script
    hours = int(re.search(r"--time=(\d+):", script)[1])
    assert hours <= 20  # a piece that the QoS takes; the whole takes days


def test_words_of_the_user_win_over_the_plan(vivace_here: Callable):
    make_plan(vivace_here)
    words = ["--plan", "plan.json", "--gpus", "8", "--time", "1:30:00", "--dry-run"]
    script = vivace_here("submit", *words, "--", "python", "train.py").out
    assert "#SBATCH --nodes=2" in script
    assert "#SBATCH --time=01:30:00" in script


def test_a_plan_without_a_run_takes_the_usual_time(vivace_here: Callable):
    make_plan(vivace_here)
    script = vivace_here("submit", "--plan", "plan.json", "--dry-run", "--", "python", "train.py").out
    assert "#SBATCH --time=02:00:00" in script


def test_a_damaged_plan_is_one_sentence(vivace_here: Callable, tmp_path: Path):
    (tmp_path / "plan.json").write_text("{")
    done = vivace_here("submit", "--plan", "plan.json", "--dry-run", "--", "python", "train.py")
    assert done.code == 2
    assert "damaged" in done.err

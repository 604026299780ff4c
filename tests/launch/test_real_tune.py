"""``vivace tune`` on a real Slurm: its trials as jobs (``--slurm``), and around srun in a job."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from launch.conftest import ROOT, Bench

TRAIN = (sys.executable, str(ROOT / "tests" / "measure" / "scripts" / "plain.py"))
SMALL = ("--steps", "4", "--rounds", "1", "--budget", "0.6")


@pytest.mark.slow
def test_each_trial_is_a_job_of_its_own(bench: Bench):
    done = bench.vivace("tune", "--slurm", "--gres=gpu:1 --time=5 --job-name=trial", *SMALL, "--json", "--", *TRAIN)
    assert done.returncode == 0, done.stderr
    trials = sorted(path.parent.name for path in bench.folder.glob("vivace-runs/*/trials/*/trial.json"))
    assert trials[0] == "000-baseline"
    assert json.loads(done.stdout)["trials"] == trials
    states = bench.cluster.run("squeue", "-h", "--name=trial", "--states=all", "-o", "%T").stdout.split()
    assert states == ["COMPLETED"] * len(trials)
    first = json.loads(next(iter(bench.folder.glob("vivace-runs/*/trials/000-baseline/trial.json"))).read_text())
    assert first["queued_s"] > 0
    assert first["command"][0] == "srun"


@pytest.mark.slow
def test_the_proof_of_a_tune_inside_a_job_is_shown_by_status(bench: Bench):
    tune = [sys.executable, "-m", "vivace", "tune", *SMALL, "--", "srun", *TRAIN]
    record = bench.submit("--once", "--name", "tuned", command=tune)
    assert bench.end(record) == "COMPLETED", bench.err(record)
    (file,) = Path(record["folder"]).glob("*/proof.json")
    proof = json.loads(file.read_text())
    found = json.loads(bench.vivace("status", "tuned", "--json").stdout)["proof"]
    assert (found["speedup"], found["file"]) == (proof["speedup"]["median"], str(file))
    assert found["practices"] == [gain["practice"] for gain in proof["practices"]]
    assert f"{found['speedup']:.2f}×" in bench.vivace("status", "tuned").stdout

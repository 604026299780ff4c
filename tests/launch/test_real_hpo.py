"""``vivace hpo --slurm`` on a real Slurm: workers as the tasks of an array, one of them killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch.conftest import ROOT, Bench

SCRIPTS = ROOT / "tests" / "hpo" / "scripts"


def _running(bench: Bench, name: str) -> list[str]:
    """Tasks of the array that run, as 17_0."""
    return bench.cluster.run("squeue", "-h", f"--name={name}", "--states=R", "-o", "%i").stdout.split()


@pytest.mark.slow
def test_an_array_of_workers_outlives_one_that_is_killed(bench: Bench):
    notes, go = bench.folder / "notes", bench.folder / "go"
    trial = ("srun", "--ntasks=2", sys.executable, "-IS", str(SCRIPTS / "waiting_ranks.py"), str(notes), "{x}", str(go))
    leader = subprocess.Popen(
        [
            sys.executable, "-m", "vivace", "hpo", "--param", "x=uniform(1,2)", "--metric", "min val_loss", "--trials",
            "4", "--workers", "2", "--confirm-seeds", "0", "--name", "searched", "--json", "--slurm",
            "--cluster testbed --gpus 2 --time 10:00", "--", *trial,
        ],
        env=bench.env, cwd=bench.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    bench.cluster.wait("both workers run a trial", lambda: notes.is_file() and len(_begun(notes)) == 2)
    leases = [json.loads(path.read_text()) for path in bench.folder.glob("vivace-runs/*/workers/*.json")]
    assert sorted(lease["job"]["id"] for lease in leases) == sorted(_running(bench, "searched"))
    os.kill(leases[0]["pid"], signal.SIGKILL)  # as an out-of-memory killer does: it gives nothing back
    bench.cluster.wait("its end", lambda: leases[0]["job"]["id"] not in _running(bench, "searched"))
    go.touch()
    out, err = leader.communicate(timeout=600)
    assert leader.returncode == 0, err
    record = json.loads(out)
    assert record["complete"]
    assert [one["state"] for one in record["trials"]] == ["complete"] * 4
    assert record["given_back"] == 1
    assert sorted(one["attempts"] for one in record["trials"]) == [1, 1, 1, 2]
    assert "2 workers are in the queue: job" in err
    values = {one["values"]["x"] for one in record["trials"]}
    assert {value for value, _ranks in _begun(notes).items()} == values
    assert all(ranks == {"0", "1"} for ranks in _begun(notes).values())  # srun's ranks had one value each time
    assert all(one["metric"] == float(one["values"]["x"]) for one in record["trials"])


def _begun(notes: Path) -> dict[str, set[str]]:
    """Value → ranks that got it; once both have."""
    found: dict[str, set[str]] = {}
    for line in notes.read_text().splitlines():
        rank, value = line.split()
        found.setdefault(value, set()).add(rank)
    time.sleep(0.1)
    return {value: ranks for value, ranks in found.items() if len(ranks) == 2}

"""``vivace hpo --engine ray --slurm`` on a real Slurm: Ray's head and workers on two emulated nodes of one job."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import psutil
import pytest
from launch.conftest import ROOT, Bench

pytest.importorskip("ray", reason="Ray is not installed: pip install 'vivace[ray]'")
SCRIPTS = ROOT / "tests" / "hpo" / "scripts"


@pytest.mark.slow
def test_ray_runs_on_all_nodes_of_a_job_and_leaves_nothing_behind(bench: Bench):
    notes = bench.folder / "notes"
    trial = (sys.executable, "-IS", str(SCRIPTS / "noted_node.py"), str(notes), "{x}", "2")
    done = bench.vivace(
        "hpo", "--engine", "ray", "--param", "x=uniform(1,2)", "--metric", "min val_loss", "--trials", "4",
        "--workers", "2", "--confirm-seeds", "0", "--name", "rayed", "--json", "--slurm",
        "--cluster testbed --gpus 8 --time 10:00", "--", *trial,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert [one["state"] for one in record["trials"]] == ["complete"] * 4
    assert "Ray is in the queue: job" in done.stderr
    job = record_job(bench)
    log = bench.folder / "vivace-runs"
    said = "\n".join(path.read_text(errors="replace") for path in log.rglob("*.out"))
    assert f":{30000 + int(job) % 2000}, 2 nodes, 1 trials on each" in said
    assert {line.split()[0] for line in notes.read_text().splitlines()} == {"node1", "node2"}
    bench.cluster.wait("the job's end", lambda: not bench.cluster.run("squeue", "-h", "-j", job).stdout.strip())
    assert "Killed" not in "\n".join(path.read_text(errors="replace") for path in log.rglob("*.err"))
    assert not list(Path("/tmp").glob(f"vivace-ray-*-{job}"))
    assert not [
        one for one in psutil.process_iter(["cmdline"]) if f"vivace-ray-{os.getuid()}-{job}" in str(one.info["cmdline"])
    ]


def record_job(bench: Bench) -> str:
    study = json.loads(next(bench.folder.glob("vivace-runs/*/study.json")).read_text())
    return str(study["jobs"][0])

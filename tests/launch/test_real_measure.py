"""``vivace measure`` on two nodes × two ranks (gloo): around srun, under srun, and in a submitted job."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS
from launch.conftest import ROOT, Bench
from launch.slurm_cluster import FINAL

EXAMPLE = ROOT / "examples" / "preemptible.py"
MEASURE = (sys.executable, "-m", "vivace", "measure", "--steps", "5", "--no-profile", "--no-flops")
TRAIN = (sys.executable, str(EXAMPLE), "--steps", "500", "--checkpoint", "x.pt")
NODES = ("node1", "node1", "node2", "node2")
BATCH = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node={tasks} --time=5 --output=out.txt --error=err.txt
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
{line}
"""


def batch(bench: Bench, line: str, tasks: int = 2) -> str:
    """Run a batch script of the user's own on two nodes; its stdout."""
    (bench.folder / "own.sh").write_text(BATCH.format(line=line, tasks=tasks))
    words = ["sbatch", "--parsable", "own.sh"]
    sent = subprocess.run(words, env=bench.env, cwd=bench.folder, capture_output=True, text=True, timeout=600)
    state = bench.cluster.wait_state(sent.stdout.strip(), FINAL)
    assert state == "COMPLETED", (bench.folder / "err.txt").read_text()
    return (bench.folder / "out.txt").read_text()


def check_ranks(measurement: dict, bench: Bench, nodes: Sequence[str] = NODES) -> None:
    """Whole, of the ranks on these nodes, and the throughput is that of all of them."""
    ranks = {rank["rank"]: rank for rank in measurement["ranks"]}
    assert measurement["status"] == "complete"
    assert measurement["steps"] == 5
    assert (measurement["batch_size"], measurement["global_batch_size"]) == (32, 32 * len(nodes))
    assert sorted(ranks) == list(range(len(nodes)))
    if bench.cluster.namespaces:
        assert [ranks[number]["host"] for number in sorted(ranks)] == list(nodes)
    assert measurement["samples_per_s"] == sum(rank["samples_per_s"] for rank in ranks.values())


def test_around_srun_all_ranks_report_into_one_folder(bench_with_names: Bench):
    bench = bench_with_names
    text = batch(bench, shlex.join([*MEASURE, "--json", "--", "srun", *TRAIN]))
    check_ranks(json.loads(text), bench)
    (folder,) = (bench.folder / "vivace-runs").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["measurement.json", "stderr.log", "stdout.log"]
    assert {f"rank {rank} of 4" in (folder / "stdout.log").read_text() for rank in range(4)} == {True}


def test_under_srun_the_vivaces_share_a_folder_and_the_first_one_tells(bench_with_names: Bench):
    bench = bench_with_names
    twice = shlex.join([*MEASURE, "--json", "--", *TRAIN])
    text = batch(bench, f"srun bash -c {shlex.quote(f'{twice} && {twice}')}", tasks=1)
    first, second = (json.loads(part + "}\n") for part in text.split("\n}\n")[:2])  # one record each time, of 2 tasks
    check_ranks(first, bench, ("node1", "node2"))
    check_ranks(second, bench, ("node1", "node2"))
    folders = sorted((bench.folder / "vivace-runs").iterdir())
    logs = [f"{stream}{rank}.log" for stream in ("stdout", "stderr") for rank in ("", "-1")]
    ends = [f"peer-{rank}.json" for rank in range(2)]
    for folder, record in zip(folders, (first, second), strict=True):
        assert sorted(path.name for path in folder.iterdir()) == sorted(["measurement.json", *logs, *ends])
        assert json.loads((folder / "measurement.json").read_text()) == record
        assert "rank 1 of 2" in (folder / "stdout-1.log").read_text()


def test_a_submitted_job_measures_itself_and_status_reads_it(bench_with_names: Bench):
    """What people type: no --once, so that every task is a vivace."""
    bench = bench_with_names
    shape = ("--gpus", "8", "--gpus-per-task", "2")
    record = bench.submit(*shape, "--name", "measured", command=[*MEASURE, "--", *TRAIN])
    assert bench.end(record) == "COMPLETED", bench.err(record)
    (file,) = Path(record["folder"]).glob("*/measurement.json")
    measurement = json.loads(file.read_text())
    check_ranks(measurement, bench)
    assert bench.out(record).count("samples/s") == 1
    found = json.loads(bench.vivace("status", "measured", "--json").stdout)
    assert found["samples_per_s"] == measurement["samples_per_s"]
    assert found["step_ms"] == measurement["step_ms"]["mean"]
    assert found["figures_from"] == str(file)
    assert "samples/s" in bench.vivace("status", record["job_id"]).stdout


def test_a_killed_task_is_waited_for_but_not_for_ever(tmp_path: Path):
    """Two tasks of a step as srun would start them; the second is killed before it can tell."""
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "PYTHONPATH": str(ROOT)}
    quick = "import vivace.measure.peers as p; p.WAIT_S = 1.0; from vivace.cli.app import main; main()"
    words = [sys.executable, "-c", quick, *MEASURE[3:], "--", sys.executable, str(SCRIPTS / "plain.py")]
    environment = {**os.environ, **step, "SLURM_PROCID": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "1 of 2 tasks were killed, or still ran when the first had ended" in done.stdout


def test_slurms_warning_is_for_the_training_and_does_not_end_vivace(tmp_path: Path):
    program = "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: exit(85)); print('up'); time.sleep(600)"
    words = [*MEASURE, "--", sys.executable, "-uc", program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        assert process.poll() is None
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGUSR1)
        assert process.wait(600) == 85


@pytest.mark.parametrize("what", ["check", "tune"])
def test_what_starts_the_training_several_times_must_be_one(what: str, tmp_path: Path):
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}
    words = [sys.executable, "-m", "vivace", what, "--", "true"]
    environment = {**os.environ, **step, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert f"srun started 2 times vivace {what}" in done.stderr
    assert f"vivace {what} -- srun python train.py" in done.stderr

"""``--retry-crash`` on a real Slurm: a crash is tried again, so often as asked; a wrong command line is not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from launch.conftest import Bench

# Crashes in as many lives as it is told, then ends well.
PROGRAM = """
import os, sys
life = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
print("life", life, flush=True)
if life < {lives}:
    {crash}
"""


def crashing(lives: int, crash: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(lives=lives, crash=crash)]


def crashes(record: dict) -> list[str]:
    file = Path(record["folder"]) / f"{record['job_id']}.crashes"
    return file.read_text().splitlines() if file.exists() else []


def test_a_crash_is_tried_again_so_often_as_asked_and_a_users_error_is_not(bench: Bench):
    """Side by side: a requeued job waits for some seconds, here as everywhere."""
    raises, killed = "raise RuntimeError('NCCL error')", "os.kill(os.getpid(), 9)"
    recovers = bench.submit("--name", "recovers", "--retry-crash", "2", command=crashing(1, raises))
    gives_up = bench.submit("--name", "gives up", "--retry-crash", "1", command=crashing(9, killed))
    wrong = bench.submit("--name", "wrong", "--retry-crash", "2", command=crashing(9, "sys.exit(2)"))
    default = bench.submit("--name", "default", command=crashing(9, raises))

    assert bench.end(recovers) == "COMPLETED"
    assert bench.out(recovers).count("life") == 2
    (line,) = crashes(recovers)
    assert "exit code 1 on node" in line

    assert bench.end(gives_up) == "FAILED"
    assert bench.out(gives_up).count("life") == 2
    assert ["exit code 137" in line for line in crashes(gives_up)] == [True, True]
    assert "is not tried again after 1 times" in bench.err(gives_up)

    for record, code in ((wrong, 2), (default, 1)):
        assert bench.end(record) == "FAILED"
        assert f"ExitCode={code}:0" in bench.cluster.show(record["job_id"])
        assert bench.out(record) == "life 0\n"
        assert crashes(record) == []


def test_a_cancelled_job_is_no_crash(bench: Bench):
    command = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    record = bench.submit("--name", "ended", "--retry-crash", "3", command=command)
    bench.cluster.wait("output", lambda: bench.out(record) == "up\n")
    assert bench.vivace("cancel", record["job_id"]).returncode == 0
    assert bench.end(record) == "CANCELLED"
    bench.cluster.wait("all processes gone", lambda: not bench.cluster.step_processes(record["job_id"]))
    assert bench.cluster.state(record["job_id"]) == "CANCELLED"
    assert crashes(record) == []


def test_crashes_cannot_be_retried_without_requeueing(bench: Bench):
    words = ("submit", "--cluster", "testbed", "--no-requeue", "--retry-crash", "1", "--", "true")
    done = bench.vivace(*words)
    assert done.returncode == 2
    assert "needs requeueing" in done.stderr
    assert json.loads(bench.vivace("queue", "--json").stdout) == []

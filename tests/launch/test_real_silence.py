"""A Slurm that does not answer is not an empty queue: real programs whose controller is not there."""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch.conftest import Bench


@pytest.fixture
def without_controller(bench: Bench, tmp_path: Path) -> dict[str, str]:
    """The cluster's configuration with a port where nothing listens."""
    text = (bench.cluster.root / "etc/slurm.conf").read_text()
    conf = tmp_path / "slurm.conf"
    conf.write_text(re.sub(r"SlurmctldPort=\d+", "SlurmctldPort=1", text) + "MessageTimeout=2\n")
    return {**bench.env, "SLURM_CONF": str(conf)}


def vivace(env: dict[str, str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vivace", *words], env=env, cwd=folder, capture_output=True, text=True, timeout=600
    )


@pytest.mark.parametrize("words", [("queue", "--no-follow"), ("queue", "--json"), ("cancel", "17"), ("status", "17")])
def test_no_answer_is_an_error_and_not_an_empty_queue(bench: Bench, without_controller: dict[str, str], words):
    done = vivace(without_controller, bench.folder, *words)
    assert done.returncode == 2
    assert "Slurm does not answer" in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_following_logs_goes_on_while_slurm_does_not_answer(bench: Bench, without_controller: dict[str, str]):
    record = bench.submit("--name", "quiet", command=["echo", "hello"])
    assert bench.end(record) == "COMPLETED"
    words = [sys.executable, "-m", "vivace", "logs", record["job_id"], "-f"]
    following = subprocess.Popen(
        words, env=without_controller, cwd=bench.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell may have ignored it
    )  # fmt: skip
    assert following.stdout is not None
    assert following.stderr is not None
    assert following.stdout.readline() == "hello\n"
    assert "Slurm does not answer" in following.stderr.readline()
    assert following.poll() is None
    following.send_signal(signal.SIGINT)
    assert following.wait(600) == 0
    following.stdout.close()
    following.stderr.close()


def test_the_user_is_asked_from_the_system(bench: Bench):
    record = bench.submit("--name", "mine", command=["sleep", "60"])
    env = {**bench.env, "LOGNAME": "somebody", "USER": "somebody"}
    assert pwd.getpwuid(os.getuid()).pw_name != "somebody"
    shown = vivace(env, bench.folder, "queue", "--json")
    assert record["job_id"] in shown.stdout
    assert vivace(env, bench.folder, "cancel", record["job_id"]).returncode == 0
    assert bench.end(record) == "CANCELLED"


def test_damaged_records_are_named(bench: Bench):
    (bench.folder / "runs/a-001").mkdir(parents=True)
    (bench.folder / "runs/a-001/run.json").write_text('{"kind": "run", "schema_version": 99}')
    done = bench.vivace("status", "a")
    assert done.returncode == 2
    assert "note: runs/a-001/run.json was written by a newer vivace (schema 99" in done.stderr
    assert "Slurm knows no job 'a'" in done.stderr


def test_a_damaged_measurement_is_not_reported_as_figures(bench: Bench):
    record = bench.submit("--name", "odd", command=["true"])
    bench.end(record)
    (Path(record["folder"]) / "measurement.json").write_text(
        '{"kind": "measurement", "schema_version": 1, "steps": 1e999}'
    )
    done = bench.vivace("status", "odd")
    assert done.returncode == 0
    assert "measurement.json is damaged" in done.stderr
    assert "not measured" in done.stdout

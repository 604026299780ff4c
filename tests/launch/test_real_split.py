"""A job longer than its QoS, in pieces, on a Slurm that enforces the QoS: the losses of a run that was left alone."""

from __future__ import annotations

import json
import re
import sys

import pytest
from launch.conftest import ROOT, Bench
from launch.test_real_preemption import losses

SITE = """
[site.short]
name = "A site of short jobs"
sources = ["tests"]
[[site.short.qos]]
name = "qos_gpu-minute"
max_hours = 0.0167
[cluster.short]
name = "One minute at a time"
site = "short"
gpu = "v100-sxm2-32gb"
gpus_per_node = 4
cores_per_gpu = 2
qos = ["qos_gpu-minute"]
sources = ["tests"]
"""
STEPS = 130  # of 0.4 s: more than the 50 s that a piece trains at most
STEP_S = 0.4


@pytest.mark.slow
def test_pieces_of_a_minute_train_as_one_long_job_does(bench_with_accounts: Bench):
    """Slurm gives the signal 20 to 50 s into a minute's piece: it looks at the clock every 30 s."""
    bench = bench_with_accounts
    if not bench.cluster.names_resolve:
        pytest.skip("the emulated nodes' names cannot be resolved: no right to make mount and UTS namespaces here")
    with (bench.folder / "catalogue.toml").open("a") as file:
        file.write(SITE)
    example = [sys.executable, str(ROOT / "examples" / "preemptible.py")]
    words = ["--steps", str(STEPS), "--step-seconds", str(STEP_S), "--checkpoint"]
    common = ("--account", "abc@v100", "--gpus", "2", "--json")

    def send(name: str, *options: str) -> dict:
        command = [*example, *words, f"{name}.pt"]
        done = bench.vivace("submit", *options, *common, "--name", name, "--", *command)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)[0]

    too_long = bench.vivace("submit", "--cluster", "short", "--time", "3:00", *common, "--", "true")
    assert "no QoS of short takes 2 GPUs for 00:03:00" in too_long.stderr
    pieces = (
        "--time",
        "3:00",
        "--split",
        "--signal-lead",
        "10",
        "--max-requeues",
        "40",
    )  # if they hardly start in time
    split = send("split", "--cluster", "short", *pieces)
    # A piece trains 60 s less 10 for the signal and 3 for the start: 180 / 47 → 4.
    assert (split["pieces"], split["time_limit_s"], split["qos"]) == (4, 60, "qos_gpu-minute")
    whole = send("whole", "--cluster", "testbed", "--time", "10:00")
    assert bench.end(whole) == "COMPLETED", bench.err(whole)
    assert bench.end(split) == "COMPLETED", bench.err(split)

    expected = losses(bench.out(whole))
    assert sorted(expected) == [(step, rank) for step in range(STEPS) for rank in range(2)]
    assert losses(bench.out(split)) == expected
    starts = [int(step) for step in re.findall(r"rank 0 of 2 on \S+ begins at step (\d+)", bench.out(split))]
    assert len(set(starts)) >= 2
    assert starts == sorted(starts)  # on a busy machine a piece may be told to stop before its first step
    assert len(re.findall(r"^step \d+ rank 0", bench.out(split), re.MULTILINE)) == STEPS  # nothing was trained twice

    found = json.loads(bench.vivace("status", "split", "--json").stdout)
    assert found["restarts"] == len(starts) - 1
    # With accounts all starts are remembered, not the last one alone.
    bench.cluster.wait(
        "sacct", lambda: json.loads(bench.vivace("status", "split", "--json").stdout)["all_starts_ran_s"]
    )
    found = json.loads(bench.vivace("status", "split", "--json").stdout)
    assert found["all_starts_ran_s"] >= STEPS * STEP_S
    assert found["all_starts_ran_s"] > found["ran_s"]

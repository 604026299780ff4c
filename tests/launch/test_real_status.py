"""``vivace status`` and ``logs`` of real jobs: throughput read back, planned and got, lost folders, forgotten jobs."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from launch.conftest import Bench
from launch.test_compared import PLAN_WORDS

# What the course's script prints about 40 ms of loading and 210 ms of training a step.
COURSE_LINES = """global batch size: {batch} - mini batch size: 256
>>> Training performance time: min 0.2 avg 0.21 seconds (+/- 0.01)
>>> Loading performance time: min 0.03 avg 0.04 seconds (+/- 0.01)
"""


# Runs until the test lets it go: no test here depends on how fast this machine is.
WAITS = ("bash", "-c", "echo up; while [ ! -e go ]; do sleep 0.1; done")


def status(bench: Bench, job: str) -> dict:
    done = bench.vivace("status", job, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def lines(bench: Bench, job: str) -> dict[str, str]:
    text = bench.vivace("status", job).stdout
    return {line[:10].strip(): line[10:].strip() for line in text.splitlines() if line.strip()}


def test_planned_against_achieved_by_the_lines_of_the_courses_script(bench: Bench):
    assert bench.vivace(*PLAN_WORDS).returncode == 0
    plan = json.loads((bench.folder / "p.json").read_text())
    says = [sys.executable, "-c", f"print({COURSE_LINES.format(batch=plan['global_batch'])!r})"]
    record = bench.submit("--plan", "p.json", "--name", "planned", "--gpus-per-task", "4", command=says)
    other = bench.submit("--plan", "p.json", "--name", "smaller", "--gpus", "1", command=says)
    assert bench.end(record) == "COMPLETED"
    found = status(bench, "planned")
    assert found["samples_per_s"] == plan["global_batch"] / 0.25
    assert found["step_ms"] == 250.0
    rows = {row["what"]: row for row in found["planned"]}
    assert sorted(rows) == ["step", "throughput", "time"]
    assert rows["step"]["planned"] == plan["step_ms"]["estimate"]
    assert rows["time"]["sentence"].endswith("below the range")  # it only printed
    shown = lines(bench, "planned")
    assert shown["step"].startswith(f"planned {plan['step_ms']['estimate']:.3g} ms")
    assert shown["step"].endswith("got 250 ms")
    assert shown["energy"] == "not measured; Slurm's accounting has none"
    bench.end(other)
    assert status(bench, "smaller")["planned"] == []
    assert lines(bench, "smaller")["plan"] == "planned for 4 GPUs, and sent to 1: not compared"


def test_what_is_not_measured_is_said(bench: Bench):
    record = bench.submit("--name", "mute", "--with", "bf16", command=["true"])
    bench.end(record)
    shown = lines(bench, "mute")
    assert shown["throughput"].startswith("not measured")
    assert shown["energy"].startswith("not measured")
    assert shown["with"] == "bf16"


def test_a_folder_removed_before_the_start_keeps_the_job_from_starting_and_that_is_said(bench: Bench):
    first = bench.submit("--name", "first", command=WAITS)
    record = bench.submit("--name", "gone", "--after", first["job_id"], command=["echo", "hello"])
    kept = bench.submit("--name", "made again", "--after", first["job_id"], command=["echo", "hello"])
    for each in (record, kept):
        shutil.rmtree(each["folder"])
    waiting = bench.vivace("logs", kept["job_id"])
    assert waiting.returncode == 2
    assert f"the folder of its logs no longer exists: {kept['folder']}; the job is pending" in waiting.stderr
    assert "mkdir -p" in waiting.stderr
    assert status(bench, "gone")["job_id"] == record["job_id"]  # by name, though its record is lost: the queue knows it
    Path(kept["folder"]).mkdir()
    (bench.folder / "go").touch()
    assert bench.end(kept) == "COMPLETED"
    assert bench.out(kept) == "hello\n"
    if bench.end(record) == "COMPLETED":  # newer Slurms (24.11) make the folder: nothing is lost
        assert bench.out(record) == "hello\n"
        return
    assert bench.end(record) == "FAILED"
    found = status(bench, record["job_id"])
    assert found["because"].startswith(f"it could not start: Slurm could not write its log files in {record['folder']}")
    assert found["logs_gone"] is True
    for options in ([], ["--err"], ["-f"]):
        done = bench.vivace("logs", record["job_id"], *options)
        assert done.returncode == 2
        assert "no longer exists" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_folder_removed_while_the_job_runs_costs_the_output_and_not_the_job(bench: Bench):
    record = bench.submit("--name", "lost", command=WAITS)
    bench.cluster.wait("output", lambda: bench.out(record) == "up\n")
    shutil.rmtree(record["folder"])
    done = bench.vivace("logs", record["job_id"], "-f")  # must not wait for a file that will not come
    assert "the job is running, and its output is lost" in done.stderr
    assert "no longer exists" in lines(bench, record["job_id"])["logs"]
    (bench.folder / "go").touch()
    assert bench.end(record) == "COMPLETED"


def test_a_job_that_slurm_has_forgotten_is_still_known_by_its_record(bench: Bench):
    record = bench.submit("--name", "old", command=["echo", "hello"])
    bench.end(record)
    file = Path(record["folder"]) / "run.json"
    file.write_text(file.read_text().replace(f'"{record["job_id"]}"', '"99999999"'))
    found = status(bench, "old")
    assert (found["state"], found["because"]) == ("unknown", "its end is not known (Slurm no longer knows the job)")


def test_an_array_is_shown_by_its_tasks(bench: Bench):
    says = "import os, sys; sys.exit(3 if os.environ['SLURM_ARRAY_TASK_ID'] == '1' else 0)"
    record = bench.submit("--name", "sweep", "--array", "0-2", command=[sys.executable, "-c", says])
    job = record["job_id"]

    def over() -> bool:
        return bench.cluster.run("squeue", "--noheader", "--jobs", job, check=False).stdout.strip() == ""

    bench.cluster.wait("all tasks", over)
    found = status(bench, job)
    assert [(task["job_id"], task["state"], task["exit_code"]) for task in found["tasks"]] == [
        (f"{job}_0", "completed", 0),
        (f"{job}_1", "failed", 3),
        (f"{job}_2", "completed", 0),
    ]
    assert (found["state"], found["because"]) == ("failed", "of 3 tasks: 2 completed, 1 failed")
    shown = bench.vivace("status", "sweep").stdout
    assert "of 3 tasks: 2 completed, 1 failed" in shown
    assert f"{job}_1" in shown
    assert status(bench, f"{job}_1")["exit_code"] == 3


def test_why_a_job_waits_is_said_also_when_it_can_never_start(bench: Bench):
    first = bench.submit("--name", "fails", command=["false"])
    held = bench.submit("--name", "held", "--sbatch=--hold", command=["true"])
    never = bench.submit("--name", "never", "--after", first["job_id"], command=["true"])
    bench.end(first)
    assert status(bench, held["job_id"])["because"] == "it is held by its owner: scontrol release JOB"
    bench.cluster.wait("the dependency", lambda: "DependencyNeverSatisfied" in bench.cluster.show(never["job_id"]))
    assert status(bench, "never")["because"] == "it will never start: the job that it waits for failed"
    bench.vivace("cancel", held["job_id"], never["job_id"])


def test_a_command_that_is_not_there_is_named(bench: Bench):
    record = bench.submit("--name", "typo", command=["pyhton", "train.py"])
    bench.end(record)
    found = status(bench, "typo")
    assert found["because"] == "the command was not found"
    assert "pyhton" in found["last_error"]
    assert "not found" in found["last_error"]


def test_a_job_that_failed_after_its_training_was_done_says_so(bench: Bench):
    """Rank 0 says it with ``close()``; who kills the job script then makes Slurm call the job FAILED."""
    ends = 'echo done >"$VIVACE_JOB_FILES.state"; kill -9 $PPID'  # without srun, the script is this one's parent
    record = bench.submit("--name", "done", "--once", command=["bash", "-c", ends])
    assert bench.end(record) == "FAILED"
    found = status(bench, "done")
    assert found["training_done"]
    assert found["because"] == "its training was done; it was ended by signal 9"

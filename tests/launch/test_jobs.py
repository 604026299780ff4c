"""What Slurm prints, read: recordings of 22.05.8 and 24.11.5 (JSON, plain text, scontrol), and damaged texts."""

from __future__ import annotations

import doctest
import importlib
import json
from pathlib import Path

import pytest

from vivace.errors import UserError
from vivace.launch import queue, status
from vivace.launch.jobs import JobInfo, from_json, from_scontrol, from_text, plain_reason
from vivace.launch.logs import find_logs, follow
from vivace.launch.preflight import parse_pairs, parse_test_only
from vivace.launch.slurm import Answer, refusal
from vivace.launch.status import from_sacct, last_error, verdict
from vivace.records.run import Run

RECORDED = Path(__file__).parent / "recorded"
VERSIONS = ["22.05", "24.11"]
NOW = 1794720049.0

# The same seven jobs were sent to both versions.
EXPECTED = {
    "1": ("a b|c", "RUNNING", None, None),
    "2": ("later", "PENDING", None, None),
    "3_0": ("many", "RUNNING", None, None),
    "3_[1-3%1]": ("many", "PENDING", None, None),
    "4": ("fails", "FAILED", 3, None),
    "5": ("killed", "FAILED", 0, 9),
    "6": ("cancelled", "CANCELLED", 0, 15),
}


def recorded(version: str, name: str) -> str:
    return (RECORDED / version / name).read_text()


def jobs_of(version: str) -> dict[str, JobInfo]:
    return {job.job_id: job for job in from_json(recorded(version, "squeue.json"), NOW)}


@pytest.mark.parametrize("version", VERSIONS)
def test_json_of_both_versions_gives_the_same_jobs(version: str):
    jobs = jobs_of(version)
    assert {key: (job.name, job.state, job.exit_code, job.signal) for key, job in jobs.items()} == EXPECTED
    assert {job.limit_s for job in jobs.values()} == {600}
    assert {job.user for job in jobs.values()} == {"root"}
    assert jobs["1"].node_list == "node1"
    assert jobs["1"].run_s is not None
    assert jobs["1"].run_s <= 4
    assert jobs["2"].reason == "BeginTime"
    assert jobs["3_[1-3%1]"].start is None
    assert [key for key, job in sorted(jobs.items()) if job.active] == ["1", "2", "3_0", "3_[1-3%1]"]


def test_the_recording_of_24_11_has_the_shapes_that_made_other_tools_fail():
    jobs = {job["job_id"]: job for job in json.loads(recorded("24.11", "squeue.json"))["jobs"]}
    assert jobs[1]["time_limit"] == {"set": True, "infinite": False, "number": 10}
    assert jobs[1]["job_state"] == ["RUNNING"]
    assert jobs[4]["exit_code"]["return_code"]["number"] == 3
    assert jobs[5]["exit_code"]["signal"]["id"] == {"set": True, "infinite": False, "number": 9}
    assert jobs[1]["array_task_id"] == {"set": False, "infinite": False, "number": 0}  # 0 is not its task: not set


def changed(**fields: object) -> JobInfo:
    """A recorded job of 24.11 with other values in some fields."""
    data = json.loads(recorded("24.11", "squeue.json"))
    job = next(job for job in data["jobs"] if job["job_id"] == 1)
    return from_json(json.dumps({**data, "jobs": [{**job, **fields}]}), NOW)[0]


def number(value: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": value}


@pytest.mark.parametrize(
    ("states", "expected", "active"),
    [
        (["RUNNING", "COMPLETING"], "COMPLETING", True),
        (["PENDING", "REQUEUED"], "PENDING", True),
        (["RUNNING", "CONFIGURING"], "RUNNING", True),
        (["FAILED", "COMPLETING"], "FAILED", False),
        (["NODE_FAIL"], "NODE_FAIL", False),
        ("RUNNING", "RUNNING", True),  # 22.05
        ([], "UNKNOWN", False),
    ],
)
def test_states_come_as_lists_with_flags(states: object, expected: str, active: bool):
    job = changed(job_state=states)
    assert (job.state, job.active) == (expected, active)


def test_numbers_that_are_infinite_or_not_set_are_not_known():
    assert changed(time_limit={"set": True, "infinite": True, "number": 0}).limit_s is None
    assert changed(time_limit={"set": False, "infinite": False, "number": 0}).limit_s is None
    assert changed(time_limit=number(90)).limit_s == 5400
    assert changed(restart_cnt=number(3)).restarts == changed(restart_cnt=3).restarts == 3
    assert changed(array_job_id=number(7), array_task_id=number(0)).job_id == "7_0"
    assert changed(start_time=number(0), job_state=["PENDING"]).start is None


def test_exit_codes_come_nested():
    no_signal = {"id": {"set": False, "infinite": False, "number": 0}, "name": ""}
    ended = {"status": ["ERROR"], "return_code": number(85), "signal": no_signal}
    assert (changed(job_state=["FAILED"], exit_code=ended).exit_code) == 85
    older = {"status": "SIGNALED", "return_code": 0, "signal": {"signal_id": 9, "name": "KILL"}}  # 23.02
    job = changed(job_state=["FAILED"], exit_code=older)
    assert (job.exit_code, job.signal) == (0, 9)


@pytest.mark.parametrize("version", VERSIONS)
def test_plain_text_says_the_same(version: str):
    by_text = {job.job_id: job for job in from_text(recorded(version, "squeue.txt"))}
    for key, job in jobs_of(version).items():
        same = ("name", "state", "limit_s", "nodes", "node_list", "partition", "user", "qos")
        assert [getattr(by_text[key], name) for name in same] == [getattr(job, name) for name in same]


@pytest.mark.parametrize("version", VERSIONS)
def test_scontrol_says_the_same(version: str):
    found = {}
    for line in recorded(version, "scontrol.txt").splitlines():
        job = from_scontrol(line)
        found[job.job_id] = (job.name, job.state, job.exit_code, job.signal)
        assert job.limit_s == 600
        assert job.stdout == "/dev/null"
    assert found == EXPECTED


def test_a_name_cannot_pass_for_a_field():
    line = recorded("22.05", "scontrol.txt").splitlines()[2]
    evil = line.replace("JobName=fails", "JobName=x UserId=me(1) JobState=COMPLETED ExitCode=0:0")
    job = from_scontrol(evil)
    assert (job.state, job.exit_code) == ("FAILED", 3)
    assert job.name == "x UserId=me(1) JobState=COMPLETED ExitCode=0:0"


def test_the_queue_falls_back_to_text_where_there_is_no_json(monkeypatch: pytest.MonkeyPatch):
    text = recorded("22.05", "squeue.txt")
    for code, out in ((1, ""), (0, "squeue: unrecognized option"), (0, "[]")):
        monkeypatch.setattr(queue, "ask", lambda *_, c=code, o=out: Answer(c, o, ""))
        monkeypatch.setattr(queue, "call", lambda *_: Answer(0, text, ""))
        assert sorted(job.job_id for job in queue.my_jobs()) == ["1", "2", "3_0", "3_[1-3%1]"]


def test_jobs_are_found_by_number_name_and_pattern():
    jobs = list(jobs_of("24.11").values())

    def found(text: str) -> list[str]:
        return sorted(job.job_id for job in queue.matching(jobs, text))

    assert found("3") == ["3_0", "3_[1-3%1]"]
    assert found("3_0") == ["3_0"]
    assert found("a b|c") == ["1"]
    assert found("*a*") == ["1", "2", "3_0", "3_[1-3%1]", "4", "6"]
    assert found("nothing") == []


def test_reasons_in_plain_words():
    assert plain_reason("Priority").startswith("other jobs come first")
    assert plain_reason("ReqNodeNotAvail, UnavailableNodes:node1").startswith("nodes that it needs")
    assert plain_reason("RaisedSignal:9(Killed)") == "it was ended by a signal"
    assert plain_reason("SomethingNew") == "SomethingNew"
    assert plain_reason("None") == ""


def test_sacct():
    text = (
        "17|CANCELLED by 1000|0:15|65|1200|2026-11-15T05:00:00|gpu_p13|qos_gpu-t3|2|a|b\n"
        "18|OUT_OF_MEMORY|0:125|5|10|Unknown|gpu_p13|qos_gpu-t3|1|x\nrubbish\n"
    )
    first, second = from_sacct(text)
    assert (first.name, first.state, first.signal, first.run_s, first.limit_s) == ("a|b", "CANCELLED", 15, 65, 72000)
    assert verdict(second, None).state == "out-of-memory"


def test_a_job_that_runs_has_no_exit_code_yet_though_sacct_says_0():
    (job,) = from_sacct("19|RUNNING|0:0|5|10|2026-11-15T05:00:00|gpu_p13|qos_gpu-t3|1|x\n")
    assert (job.exit_code, job.signal) == (None, None)


@pytest.mark.parametrize(
    ("log", "state"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "out-of-memory"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0", "out-of-memory"),
        ("slurmstepd: error: *** JOB 1 ON node1 CANCELLED AT 2026 DUE TO TIME LIMIT ***", "timeout"),
        ("ValueError: no", "failed"),
    ],
)
def test_what_a_job_died_of(tmp_path: Path, log: str, state: str):
    (tmp_path / "x.err").write_text(log)
    assert verdict(JobInfo(job_id="1", name="x", state="FAILED", exit_code=1), tmp_path / "x.err").state == state


def test_a_verdict_without_logs_or_exit_code():
    assert verdict(JobInfo(job_id="1", name="x", state="FAILED"), None).because == "its end is not known"
    assert verdict(JobInfo(job_id="1", name="x", state="TIMEOUT"), None).state == "timeout"
    assert verdict(JobInfo(job_id="1", name="x", state="NEW_STATE"), None).state == "unknown"


@pytest.mark.parametrize("state", ["SUSPENDED", "STOPPED"])
def test_a_job_that_stands_still_is_not_over_and_does_not_read_as_if_it_ran(state: str):
    job = JobInfo(job_id="1", name="x", state=state)
    assert job.active
    assert verdict(job, None).state == "running"
    assert f"stands still ({state.lower()})" in verdict(job, None).because
    assert last_error("") is None


def test_refusals_have_a_hint():
    said = "sbatch: error: Batch job submission failed: Invalid qos specification\n"
    error = refusal("sbatch", Answer(1, "", said))
    assert error.said == "Batch job submission failed: Invalid qos specification"
    assert "--qos" in (error.hint or "")


def test_test_only_and_partitions():
    text = "sbatch: Job 9 to start at 2026-11-15T05:30:46 using 2 processors on nodes node[1-2] in partition gpu_p13\n"
    assert parse_test_only(text) == ("2026-11-15T05:30:46", "gpu_p13")
    assert parse_test_only("") == (None, None)
    assert parse_pairs("PartitionName=a MaxNodes=UNLIMITED MaxTime=20:00:00")["MaxTime"] == "20:00:00"


def run_record(folder: Path, **more: object) -> Run:
    fields = {"command": ("x",), "launcher": "slurm", "state": "queued", "folder": str(folder), "job_id": "7", **more}
    folder.mkdir(parents=True)
    run = Run.model_validate(fields)
    run.save(folder / "run.json")
    return run


def test_logs_are_found_by_record_and_the_newest_wins(tmp_path: Path):
    for number, job in enumerate(("9", "10"), start=1):
        folder = tmp_path / "100% mine" / f"train-00{number}"
        escaped = str(folder).replace("%", "%%")
        run_record(folder, job_id=job, name="train", stdout=f"{escaped}/%j.out", stderr=f"{escaped}/%j.err")
    (found,) = find_logs("tra*", tmp_path / "100% mine")
    assert found.stdout == tmp_path / "100% mine" / "train-002" / "10.out"
    assert find_logs("9", tmp_path / "100% mine")[0].job_id == "9"
    assert find_logs("train-001", tmp_path / "100% mine")[0].job_id == "9"
    (tmp_path / "100% mine" / "train-001" / "run.json").write_text("damaged")
    with pytest.raises(UserError, match="no log"):
        find_logs("train-001", tmp_path / "100% mine")


def test_following_reads_what_comes_after_the_end_too(tmp_path: Path):
    file = tmp_path / "x.out"
    states = iter([True, True, False])

    def still_active() -> bool:
        with file.open("a") as handle:
            handle.write("more\n")
        return next(states)

    assert b"".join(follow(file, still_active, pause_s=0.001)) == b"more\n" * 3


@pytest.mark.parametrize(
    "name",
    [
        "words",
        "shape",
        "request",
        "jobs",
        "queue",
        "status",
        "local",
        "practised",
        "compared",
        "..distributed",
    ],
)
def test_examples_in_docstrings(name: str):
    module = importlib.import_module(f".{name.removeprefix('..')}", "vivace" if ".." in name else "vivace.launch")
    assert doctest.testmod(module).failed == 0


def test_a_command_that_the_warning_killed_is_told_so():
    killed = JobInfo(job_id="1", name="deaf", state="FAILED", exit_code=128 + 10)
    assert "nothing listened, nothing was saved" in status.verdict(killed, None).because


def test_without_slurm_the_message_is_clear(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert status.ask_slurm("1") is None
    with pytest.raises(UserError, match="Slurm is not on this machine: squeue was not found") as caught:
        queue.my_jobs()
    assert "--launcher local" in (caught.value.hint or "")

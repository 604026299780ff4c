"""The job script itself, run by bash with stand-ins for Slurm's programs: how it waits for its command."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import environment

from vivace.launch.request import JobRequest
from vivace.launch.script import Place, prepare, render
from vivace.launch.target import find_target

SRUN = '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n'
SCONTROL = '#!/bin/sh\necho "$1" >>asked; cat answer 2>/dev/null || echo JobState=RUNNING\n'


def started(folder: Path, command: tuple[str, ...], retry_crash: int = 0) -> subprocess.Popen[bytes]:
    programs = folder / "bin"
    programs.mkdir()
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    script = folder / "job.sh"
    place = Place(str(script), str(folder / "%j.out"), str(folder / "%j.err"), str(folder))
    request = JobRequest(command=command, name="demo", gpus=1, seconds=3600, modules=(), retry_crash=retry_crash)
    script.write_text(render(prepare(request, find_target("jean-zay-a100")), place))
    path = f"{programs}:{os.environ['PATH']}"
    return subprocess.Popen(
        ["bash", str(script)], env=environment(PATH=path, SLURM_JOB_ID="7"), cwd=folder, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in a background shell
    )  # fmt: skip


def wait_for(happened: Callable[[], object]) -> None:
    until = time.monotonic() + 200
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.05)


def processes_of(session: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[3]) == session:
                found.append(int(folder.name))
    return sorted(found)


@pytest.mark.parametrize("whole_job", [False, True])
def test_a_command_that_is_stopped_and_continued_is_waited_for(tmp_path: Path, whole_job: bool):
    """As Slurm does when it suspends a job. bash ends its wait then, and the script took the command for ended: alone
    with a failure, and together with the script with 0, so that the job read COMPLETED in the midst of its training."""
    program = "echo $$ >started.part; mv started.part started; until [ -e go ]; do sleep 0.05; done; exit 7"
    job = started(tmp_path, ("bash", "-c", program))
    wait_for((tmp_path / "started").exists)
    command = int((tmp_path / "started").read_text())
    for _ in range(2):
        for number in (signal.SIGTSTP, signal.SIGSTOP, signal.SIGCONT):
            for process in processes_of(job.pid) if whole_job else [command]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)
            time.sleep(0.7)  # as Slurm does; a mistake needs a moment to happen
    assert job.poll() is None
    (tmp_path / "go").touch()
    assert job.wait(200) == 7


STOPS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.mark.parametrize("number", STOPS)
def test_whoever_ends_the_script_alone_ends_the_command_and_its_code_gets_out(tmp_path: Path, number: signal.Signals):
    """The script died of it, the job read FAILED at once, and what the command still had to save was lost."""
    program = "trap 'echo heard >heard; exit 7' TERM; touch started; while :; do sleep 0.05; done"
    job = started(tmp_path, ("bash", "-c", program))
    wait_for((tmp_path / "started").exists)
    os.kill(job.pid, number)
    assert job.wait(200) == 7
    assert (tmp_path / "heard").exists()


@pytest.mark.parametrize("number", STOPS)
def test_ranks_that_listen_are_told_by_the_file(tmp_path: Path, number: signal.Signals):
    program = (
        "trap 'exit 9' TERM; echo listening >7.state; touch started; until [ -e 7.told ]; do sleep 0.05; done; exit 3"
    )
    job = started(tmp_path, ("bash", "-c", program))
    wait_for((tmp_path / "started").exists)
    os.kill(job.pid, number)
    assert job.wait(200) == 3


@pytest.mark.parametrize("number", STOPS)
def test_a_command_that_is_done_is_not_interrupted(tmp_path: Path, number: signal.Signals):
    program = "trap 'exit 9' TERM; echo done >7.state; touch started; until [ -e go ]; do sleep 0.05; done; exit 0"
    job = started(tmp_path, ("bash", "-c", program))
    wait_for((tmp_path / "started").exists)
    for _ in range(3):
        os.kill(job.pid, number)
        time.sleep(0.1)
    (tmp_path / "go").touch()
    assert job.wait(200) == 0


@pytest.mark.parametrize(("reason", "goes_on"), [("TimeLimit", True), ("None", False)])
def test_a_job_whose_time_ended_while_it_saved_goes_on_and_a_cancelled_one_does_not(
    tmp_path: Path, reason: str, goes_on: bool
):
    (tmp_path / "answer").write_text(f"JobId=7 JobState=COMPLETING Reason={reason} Dependency=(null)\n")
    assert started(tmp_path, ("bash", "-c", "exit 85")).wait(200) == 85
    assert ("requeue" in (tmp_path / "asked").read_text().split()) is goes_on


def test_a_crash_when_the_time_is_over_is_not_tried_again(tmp_path: Path):
    (tmp_path / "answer").write_text("JobId=7 JobState=COMPLETING Reason=TimeLimit Dependency=(null)\n")
    assert started(tmp_path, ("bash", "-c", "exit 1"), retry_crash=2).wait(200) == 1
    assert "requeue" not in (tmp_path / "asked").read_text().split()

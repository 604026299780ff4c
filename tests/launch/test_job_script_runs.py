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
SCONTROL = "#!/bin/sh\necho JobState=RUNNING\n"


def started(folder: Path, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
    programs = folder / "bin"
    programs.mkdir()
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    script = folder / "job.sh"
    place = Place(str(script), str(folder / "%j.out"), str(folder / "%j.err"), str(folder))
    request = JobRequest(command=command, name="demo", gpus=1, seconds=3600, modules=())
    script.write_text(render(prepare(request, find_target("jean-zay-a100")), place))
    path = f"{programs}:{os.environ['PATH']}"
    return subprocess.Popen(
        ["bash", str(script)], env=environment(PATH=path, SLURM_JOB_ID="7"), cwd=folder, start_new_session=True
    )


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

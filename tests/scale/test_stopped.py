"""A rank that is stopped is noticed, with the process that is; a job that was suspended as a whole is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from vivace.scale.stopped import Stopped

WITH_CHILD = (
    "import subprocess, sys; child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True); child.wait()"
)


@pytest.fixture
def ranks() -> Iterator[list[tuple[int, int]]]:
    """Two processes with a child each: (process, child)."""
    processes = [
        subprocess.Popen([sys.executable, "-c", WITH_CHILD], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    children = [int(process.stdout.readline()) for process in processes if process.stdout is not None]
    yield [(process.pid, child) for process, child in zip(processes, children, strict=True)]
    for process, child in zip(processes, children, strict=True):
        os.kill(child, signal.SIGKILL)
        process.kill()
        process.communicate()


def wait_until_stopped(process: int) -> None:
    os.kill(process, signal.SIGSTOP)
    while os.waitid(os.P_PID, process, os.WSTOPPED | os.WNOWAIT) is None:
        pass


def test_a_stopped_rank_is_named_after_several_looks(ranks: list[tuple[int, int]]):
    stopped, processes = Stopped(looks=2), [process for process, _ in ranks]
    assert stopped.look(processes) is None
    wait_until_stopped(processes[1])
    assert stopped.look(processes) is None
    assert stopped.look(processes) == (1, processes[1])
    os.kill(processes[1], signal.SIGCONT)
    os.waitid(os.P_PID, processes[1], os.WCONTINUED)
    assert stopped.look(processes) is None


def test_a_stopped_helper_holds_its_rank_up(ranks: list[tuple[int, int]]):
    stopped, (_, child) = Stopped(looks=1), ranks[0]
    os.kill(child, signal.SIGSTOP)
    while (found := stopped.look([process for process, _ in ranks])) is None:  # the kernel takes its time
        pass
    assert found == (0, child)


def test_a_job_that_is_suspended_as_a_whole_is_left_alone(ranks: list[tuple[int, int]]):
    stopped, processes = Stopped(looks=1), [process for process, _ in ranks]
    for process in processes:
        wait_until_stopped(process)
    assert stopped.look(processes) is None

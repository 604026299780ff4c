"""How a rank ends after ``requeue_and_exit``: with its own exit code, and with its process groups destroyed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment
from forked.process import PYTHON

from vivace.preemption import Preemption

SCRIPT = """
import atexit, os
import torch.distributed as dist

def tell(text):
    os.write(1, f"{text}: {dist.is_initialized()}\\n".encode())  # in one piece: two ranks share the pipe

atexit.register(tell, "groups left")  # registered before vivace's: it runs after it
from vivace.preemption import Preemption

dist.init_process_group("gloo")
guard = Preemption()
if os.environ["RANK"] == "1":
    guard.signal = 10
while not guard.should_stop():
    pass
try:
    guard.requeue_and_exit()
finally:
    tell("the script's own clean-up")
"""


def test_groups_are_ended_after_the_scripts_own_clean_up(tmp_path: Path):
    """A rank that leaves gloo's threads to Python's end may be aborted: 134 instead of the code that means requeue."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    torchrun = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, str(script)], capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=600
    )
    assert "exitcode  : 85" in done.stderr
    assert done.stdout.count("the script's own clean-up: True") == 2
    assert done.stdout.count("groups left: False") == 2


LATE = """
import os, signal, sys
from vivace.preemption import Preemption

class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGUSR1):
        kill(pid, number)  # while Python takes its modules apart, after it gave the handlers back

late = Late()
guard = Preemption()
if sys.argv[1] == "closed":
    guard.close()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert guard.signal is None
print("exported")
"""


@pytest.mark.parametrize("how", ["closed", "left open"])
def test_a_warning_after_the_training_is_done_does_not_kill_it(tmp_path: Path, how: str):
    """It would end with 138, and the job script would train the last piece again."""
    script = tmp_path / "train.py"
    script.write_text(LATE)
    done = subprocess.run(
        [sys.executable, str(script), how], capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=600
    )
    assert (done.returncode, done.stdout) == (0, "exported\n"), done.stderr


TERMINATED = """
import multiprocessing, os, signal, subprocess, sys, time
from vivace.preemption import Preemption

class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):
        kill(pid, number)

late = Late()
Preemption().close()
os.kill(os.getpid(), signal.SIGTERM)
program = subprocess.Popen(["sleep", "600"])
program.terminate()
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
child.start()
child.terminate()
child.join()
print("exported", program.wait(), child.exitcode, flush=True)
"""


def test_sigterm_after_the_training_is_done_does_not_kill_it_in_a_job(tmp_path: Path):
    """A finished job would read FAILED. What the script starts can still be terminated; so can it outside Slurm."""
    script = tmp_path / "train.py"
    script.write_text(TERMINATED)

    def run(**variables: str) -> tuple[int, str]:
        words = [sys.executable, str(script)]
        place = environment(**variables)
        done = subprocess.run(words, capture_output=True, text=True, env=place, cwd=tmp_path, timeout=600)
        return done.returncode, done.stdout + done.stderr

    assert run(SLURM_JOB_ID="7") == (0, "exported -15 -15\n")
    assert run() == (-signal.SIGTERM, "")


def test_a_handler_of_the_script_comes_back_after_close():
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: seen.append(number))
    try:
        with Preemption() as guard:
            os.kill(os.getpid(), signal.SIGUSR1)
        assert (guard.signal, seen) == (signal.SIGUSR1, [])
        os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)

"""How a rank ends after ``requeue_and_exit``: with its own exit code, and with its process groups destroyed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import environment

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
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, str(script)], capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=120
    )
    assert "exitcode  : 85" in done.stderr
    assert done.stdout.count("the script's own clean-up: True") == 2
    assert done.stdout.count("groups left: False") == 2

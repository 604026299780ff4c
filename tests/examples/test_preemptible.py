"""``examples/preemptible.py`` on four ranks: stopped by a signal, then killed without one, it gives the same losses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from conftest import environment
from forked.process import PYTHON
from launch.test_real_preemption import losses

EXAMPLE = Path(__file__).parents[2] / "examples" / "preemptible.py"
STEPS, RANKS = 40, 4

# Runs the example, whose steps take a minute each by the guard's clock. The pause after a step is the time for a fault.
WITH_FAULT = """
import os, runpy, signal, sys, time
from vivace.preemption import guard

fault, stop_at, *sys.argv = sys.argv[1:]
steps = 0

def sleep(_seconds):
    global steps
    steps += 1
    if steps == int(stop_at) and fault == "signal" and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGUSR1)
    if steps == int(stop_at) and fault == "death":  # of the node: no rank is warned
        os.kill(os.getpid(), signal.SIGKILL)

class Clock:
    @staticmethod
    def monotonic():
        return 60.0 * steps

time.sleep, guard.time = sleep, Clock
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def train(folder: Path, checkpoint: str, fault: str = "none", stop_at: int = 0) -> str:
    script = folder / "with_fault.py"
    script.write_text(WITH_FAULT)
    torchrun = [PYTHON, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    words = ["--steps", str(STEPS), "--checkpoint", checkpoint, "--save-minutes", "4"]
    done = subprocess.run(
        [*torchrun, str(script), fault, str(stop_at), str(EXAMPLE), *words],
        env={**environment(), "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode == 0) == (fault == "none"), done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(2400)  # sixteen processes that import torch
def test_four_ranks_go_on_bit_for_bit_after_a_signal_and_after_a_death(tmp_path: Path):
    expected = losses(train(tmp_path, "whole.pt"))
    assert sorted(expected) == [(step, rank) for step in range(STEPS) for rank in range(RANKS)]
    text = train(tmp_path, "cut.pt", "signal", 3)
    text += train(tmp_path, "cut.pt", "death", 8)
    text += train(tmp_path, "cut.pt")
    assert losses(text) == expected
    # The ranks agree one step later: on the signal after step 3, on a save after the fourth minute of a life.
    assert sorted({int(step) for step in re.findall(r"begins at step (\d+)", text)}) == [0, 4, 4 + 5]

"""The sampler finds planted delays on their lines, leaves the script's signals alone, and ends with its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vivace.protocol.sampling import Sampler

PLANTED = Path(__file__).parent / "planted_lines.py"
ROOT = Path(__file__).parents[3]
OTHERS = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3.*[0-9]"))
OLDER_AND_NEWER = [str(path) for path in OTHERS if path.name in ("python3.9", "python3.12", "python3.13")]


def run(python: str, *arguments: str) -> dict:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, str(PLANTED), "--without-torch", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(seen: dict, error: float, ms: float) -> None:
    """Truth is the clock of the same run: a busy machine slows both down. A thread without a core is on no line."""
    ms += seen["no_core_ms"]
    for name, truth in seen["truth_ms"].items():
        assert seen["found_ms"].get(name, 0.0) == pytest.approx(truth, rel=error, abs=ms), (name, seen)
    every = sum(seen["found_ms"].values()) + seen["own_ms"] + seen["gc_ms"]
    assert every == pytest.approx(seen["whole_ms"], rel=0.05, abs=10.0)


@pytest.mark.parametrize("python", [sys.executable, *OLDER_AND_NEWER], ids=lambda path: Path(path).name)
def test_delays_are_found_on_their_lines(python: str):
    seen = run(python)
    assert seen["how"] == Sampler.TIMER.value
    check(seen, 0.25, 30.0)  # of eight rounds together


def test_without_a_timer_a_thread_looks():
    seen = run(sys.executable, "--in-a-thread")
    assert seen["how"] == Sampler.THREAD.value
    check(seen, 0.5, 60.0)


SCRIPT = """
import os, signal, subprocess, sys, time, types
import torch
from vivace.measure.inside.lines.sampler import LineSampler
sampler = LineSampler(period_ns=200_000)
heard = []
signal.signal(signal.SIGALRM, lambda *_: heard.append("alarm"))
signal.signal(signal.SIGUSR1, lambda *_: heard.append("user"))
before = {number: signal.getsignal(number) for number in signal.valid_signals()}
what = sys.argv[1]
if what in ("plain", "fork", "exec"):  # at exit a timer of the script's own would end the process
    signal.setitimer(signal.ITIMER_REAL, 0.02)
sampler.begin()
if what == "exit":
    sys.exit(3)
if what == "crash":
    raise ValueError("own")
child = os.fork() if what == "fork" else None
deadline = time.monotonic() + 20
while ("alarm" not in heard or len(sampler.samples) < 9) and child != 0 and time.monotonic() < deadline:
    time.sleep(0.01)
if child == 0:
    time.sleep(0.1)
    sampler.finish()
    os._exit(7 if not sampler.ended_ns else 8)
if what == "exec":
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(0.2)"])
os.kill(os.getpid(), signal.SIGUSR1)
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert subprocess.run(["sleep", "0.05"]).returncode == 0
sampler.finish()
assert heard == ["alarm", "user"], heard
assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before
time.sleep(0.05)
print(len(sampler.samples))
"""


@pytest.mark.parametrize(("what", "code"), [("plain", 0), ("fork", 0), ("exec", 0), ("exit", 3), ("crash", 1)])
def test_the_process_lives_and_ends_as_without_it(what: str, code: int):
    done = subprocess.run([sys.executable, "-c", SCRIPT, what], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == code, done.stderr
    if what in ("plain", "fork"):
        assert int(done.stdout) > 5

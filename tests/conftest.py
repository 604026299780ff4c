"""Shared fixtures. Tests start real processes; this is how they start vivace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ordering
import pytest
from hypothesis import HealthCheck, settings

# No test depends on timing or chance: no deadline, no look at how fast examples are made, the same ones in every run.
settings.register_profile(
    "busy machine", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)  # fmt: skip
settings.load_profile("busy machine")

# A suite started by nohup, or by a shell in the background, ignores these, and so would everything that it starts.
for _number, _handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

SCRIPTS = Path(__file__).parent / "measure" / "scripts"
VIVACE = [sys.executable, "-m", "vivace"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help="write what slow tests take to durations.csv")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ordering.Recorder())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        known = ordering.read_durations()
        expected = [ordering.expected_s(item.nodeid, getattr(item, "fixturenames", ()), known) for item in items]
        items[:] = [items[i] for i in ordering.arranged([item.nodeid for item in items], expected, workers)]


class Done:
    """A finished ``vivace`` process."""

    def __init__(self, process: subprocess.CompletedProcess[str], runs: Path) -> None:
        self.code, self.out, self.err, self.runs = process.returncode, process.stdout, process.stderr, runs

    @property
    def record(self) -> dict[str, Any]:
        assert self.out, f"no JSON on stdout; stderr:\n{self.err}"
        return json.loads(self.out)

    @property
    def folder(self) -> Path:
        (folder,) = self.runs.iterdir()
        return folder


def environment(**more: str) -> dict[str, str]:
    """One thread a process: two test workers share two cores, and results must not depend on their number. torchrun's
    ranks meet at localhost: by default at the machine's name, which a machine need not be able to look up."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("VIVACE_", "RANK", "WORLD_SIZE", "SLURM_"))}
    return {**keep, "OMP_NUM_THREADS": "1", "PET_LOCAL_ADDR": "localhost", **more}


def interrupted(arguments: Sequence[str], cwd: Path, ready: Callable[[], bool]) -> Done:
    """``vivace ARGUMENTS`` with a Ctrl-C, which reaches the whole group of processes, once ``ready()``."""
    process = subprocess.Popen(
        [*VIVACE, *arguments], cwd=cwd, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # ignored in a background shell
    )  # fmt: skip
    deadline = time.monotonic() + 600
    while not ready():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=600)
    return Done(subprocess.CompletedProcess(arguments, process.returncode, out, err), cwd / "vivace-runs")


@pytest.fixture
def vivace(tmp_path: Path) -> Callable[..., Done]:
    """Run ``vivace ARGUMENTS`` in an empty folder, in a process of its own."""

    def run(*arguments: str, cwd: Path = tmp_path, **more: str) -> Done:
        done = subprocess.run(
            [*VIVACE, *arguments], capture_output=True, text=True, cwd=cwd, env=environment(**more), timeout=600
        )
        return Done(done, cwd / "vivace-runs")

    return run


@pytest.fixture
def vivace_here(tmp_path: Path) -> Callable[..., Done]:
    """The same in this process, and the scripts in forked ones: a second instead of five. What is tested here is what
    vivace sees and says of a script; that it starts and ends as a command should, others test with ``vivace``."""
    from forked.here import vivace_here

    def run(*arguments: str, cwd: Path = tmp_path, **more: str) -> Done:
        return Done(vivace_here(arguments, cwd, environment(**more)), cwd / "vivace-runs")

    return run


@pytest.fixture
def forked_scripts() -> Iterator[None]:
    """The scripts that a test of this process measures run in forked processes."""
    from forked.here import forked_scripts

    with patch.dict(os.environ, environment(), clear=True), forked_scripts():
        yield


@pytest.fixture
def measure(vivace_here: Callable[..., Done]) -> Callable[..., Done]:
    """``vivace measure --json`` of one of the scripts in tests/measure/scripts, with that script's arguments."""

    def run(script: str, *arguments: str, options: Sequence[str] = ("--steps", "6"), **more: str) -> Done:
        command = [sys.executable, str(SCRIPTS / script), *arguments]
        return vivace_here("measure", "--json", *options, "--", *command, **more)

    return run

"""Runs scripts as processes forked from one that has torch in memory (``template.py``), instead of from nothing."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
from conftest import environment

__all__ = ["run", "same_at_start"]

TEMPLATE = Path(__file__).parent / "template.py"
# Read by the bootstrap, by the script, when CUDA starts or when something is compiled: always after the fork.
READ_LATER = (
    "VIVACE_", "PYTHONPATH", "PYTEST_", "CUDA_VISIBLE_DEVICES", "TORCHINDUCTOR_CACHE_DIR", "RANK", "WORLD_SIZE",
    "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MEETING",
)  # fmt: skip


def _read_at_start(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not name.startswith(READ_LATER)}


START = environment()  # of every template
_idle: list[subprocess.Popen[str]] = []


def same_at_start(wanted: Mapping[str, str]) -> bool:
    """Libraries read variables when they are loaded: with other values, a script needs a fresh process."""
    return _read_at_start(wanted) == _read_at_start(START)


@contextlib.contextmanager
def _template() -> Iterator[subprocess.Popen[str]]:
    """One that waits, else a new one. It ends when this process does: its stdin is closed then."""
    template = _idle.pop() if _idle else _new_template()
    yield template
    _idle.append(template)  # not one that was given up


def _new_template() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(TEMPLATE)], env=START, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def run(script: Path, folder: Path, wanted: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=folder, env=wanted)``."""
    with _template() as template:
        assert template.stdin is not None
        assert template.stdout is not None
        asked = {"script": str(script), "folder": str(folder), "environment": dict(wanted)}
        template.stdin.write(json.dumps(asked) + "\n")
        template.stdin.flush()
        if not select.select([template.stdout], [], [], timeout_s)[0]:
            _end(template)
            raise subprocess.TimeoutExpired(str(script), timeout_s)
        code = int(template.stdout.readline())
    return subprocess.CompletedProcess(
        [str(script)], code, (folder / "stdout.txt").read_text(), (folder / "stderr.txt").read_text()
    )


def _end(template: subprocess.Popen[str]) -> None:
    """Together with what it started."""
    family = psutil.Process(template.pid)
    for process in [*family.children(recursive=True), family]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    template.wait()

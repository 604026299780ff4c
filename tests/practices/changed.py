"""Runs a small script, unedited, in a process of its own with practices in place, and returns what it printed.

The script imports torch itself: that is when the practices come in, as with ``vivace run --with``.
Processes are forked from one that has torch in memory, unless the script could tell a difference.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import environment
from forked import process

from vivace.measure.starting import environment_for
from vivace.measure.told import read_told
from vivace.practices.engine.registry import environment_of
from vivace.protocol.request import Entry, ProcessRequest

__all__ = ["WITHOUT_CPP", "Changed", "needs_gpu", "run_here", "run_ranks", "run_with"]

TIMEOUT_S = 600
WITHOUT_CPP = "import torch._inductor.config; torch._inductor.config.fallback_by_default = True\n"
"""Before a script that is compiled: all but the C++ compiler, which takes most of the time. One test has it as well."""

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@dataclass(frozen=True)
class Changed:
    """``printed``: the JSON of the script's last line. ``told``: what became of each practice, once two steps ran,
    as a sentence."""

    printed: Any
    told: dict[str, str]
    stdout: str
    stderr: str


def run_here(script: str) -> Any:
    """The JSON of the last line that a script prints, without practices, in this process: a reference that is cheap.
    With one thread, as ``run_with``: sums would differ in the last bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(script, "script.py", "exec"), {"__name__": "__main__"})
    finally:
        torch.set_num_threads(threads)
    return json.loads(printed.getvalue().strip().splitlines()[-1])


def run_with(script: str, words: tuple[str, ...] | list[str], folder: Path, **more: str) -> Changed:
    """``more``: environment variables, as a user would have set them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "script.py"
    path.write_text(script)
    request = ProcessRequest(folder=str(folder), entry=Entry.PRACTICES, measure=False, practices=tuple(words))
    base = {**environment_of(words), **environment(**more)}
    wanted = environment_for(request, base)
    command = [sys.executable, str(path)]
    if process.can_fork(command, wanted, folder):
        done = process.run(command, folder, wanted, TIMEOUT_S)
    else:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=wanted, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert "nothing is measured or changed" not in done.stderr, done.stderr
    lines = done.stdout.strip().splitlines()
    told = {word: str(answer) for word, answer in read_told(folder).items()}
    return Changed(json.loads(lines[-1]) if lines else None, told, done.stdout, done.stderr)


def run_ranks(script: str, words: tuple[str, ...] | list[str], folder: Path) -> list[Changed]:
    """As two ranks, which find each other with ``init_process_group("gloo", MEETING, rank=RANK, world_size=2)``."""

    def run(rank: int) -> Changed:
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
        return run_with(script, words, folder / str(rank), MEETING=f"file://{folder}/meeting", **place)

    folder.mkdir()
    with ThreadPoolExecutor(2) as both:
        return list(both.map(run, range(2)))

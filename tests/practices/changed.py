"""Runs a small script, unedited, in a fresh process with practices in place, and hands back what it printed.

The script imports torch itself: that is when the practices come in, as with ``vivace run --with``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import environment

from vivace.measure.command import environment_for
from vivace.measure.measuring import read_told
from vivace.protocol.request import Entry, ProcessRequest
from vivace.tune.trials import environment_of

__all__ = ["Changed", "needs_gpu", "run_with"]

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@dataclass(frozen=True)
class Changed:
    """``printed``: the JSON of the script's last line. ``told``: what became of each practice, once two steps ran,
    as a sentence."""

    printed: Any
    told: dict[str, str]
    stdout: str
    stderr: str


def run_with(script: str, words: tuple[str, ...] | list[str], folder: Path, **more: str) -> Changed:
    """``more``: environment variables, as a user would have set them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "script.py"
    path.write_text(script)
    request = ProcessRequest(folder=str(folder), entry=Entry.PRACTICES, measure=False, practices=tuple(words))
    base = {**environment_of(words), **environment(**more)}
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment_for(request, base),
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "cannot measure this process" not in done.stderr, done.stderr
    lines = done.stdout.strip().splitlines()
    told = {word: str(answer) for word, answer in read_told(folder).items()}
    return Changed(json.loads(lines[-1]) if lines else None, told, done.stdout, done.stderr)

"""A study on a disk that is full for a while: its worker waits for room, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import environment

from vivace.hpo.asked import Asked, PrunerName, write_asked
from vivace.hpo.ledger import Ledger, Part


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """One MiB. Only root may mount it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no right to mount a small disk here: {done.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_study_waits_for_room_and_goes_on(asked: Callable[..., Asked], small_disk: Path) -> None:
    made = replace(asked(trials=3, pruner=PrunerName.NONE), cwd=str(small_disk))
    write_asked(small_disk, made)
    Ledger(small_disk, made)
    ballast = small_disk / "ballast"
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    worker = subprocess.Popen(
        [sys.executable, "-m", "vivace", "hpo", "--join", str(small_disk)], stderr=subprocess.PIPE, text=True,
        cwd=small_disk.parent, env=environment(),
    )  # fmt: skip
    assert worker.stderr is not None
    assert "No space left on device" in worker.stderr.readline()
    os.unlink(ballast)
    assert worker.wait() == 0
    worker.stderr.close()
    states = [trial.state.name for trial in Ledger(small_disk, made).trials(Part.SEARCH)]
    assert states == ["COMPLETE"] * 3

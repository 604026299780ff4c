"""Time in the queue is told apart from the time that a trial runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from vivace.tune.queued import marked, queued_s


def test_the_command_runs_word_for_word_and_leaves_its_mark_once(tmp_path: Path):
    words = ["printf", "%s|", "a b", "$HOME", "'", ""]
    command = marked(["env", "X=1"], words, tmp_path)
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "a b|$HOME|'||"
    os.utime(tmp_path / "started", (1000.0, 1000.0))
    subprocess.run(command, capture_output=True, check=True)  # the second task of the same job
    assert (tmp_path / "started").stat().st_mtime == 1000.0


def test_without_a_queue_nothing_is_added(tmp_path: Path):
    assert marked((), ["python", "t.py"], tmp_path) == ("python", "t.py")


@pytest.mark.parametrize(("started", "waited"), [(1010.0, 10.0), (990.0, 0.0), (1100.0, 60.0)])
def test_the_wait_lies_within_the_trial_whatever_the_clocks_say(tmp_path: Path, started: float, waited: float):
    (tmp_path / "started").touch()
    os.utime(tmp_path / "started", (started, started))
    assert queued_s(tmp_path, 1000.0, 1060.0) == waited


def test_a_job_that_never_began_waited_all_the_time(tmp_path: Path):
    assert queued_s(tmp_path, 1000.0, 1060.0) == 60.0

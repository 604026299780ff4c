"""A rank that hangs is named, with the line that it stands at. Nothing is ended."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from vivace.scale.progress import Behind, Progress, Standstill, line_of, prepare, where_it_stands


def hangs_here() -> None:
    time.sleep(600)


def test_the_rank_that_does_not_come_is_named_once(tmp_path: Path):
    prepare(tmp_path, 3)
    ranks = [Progress(tmp_path, rank) for rank in range(3)]
    standstill = Standstill(tmp_path, looks=2)
    with ranks[0], ranks[1], ranks[2]:
        pass
    assert [standstill.look() for _ in range(4)] == [None] * 4  # nobody waits: all compute
    with ranks[0], ranks[2]:
        assert [standstill.look() for _ in range(5)] == [None, None, Behind([1], [0, 2]), None, None]
        with ranks[1]:
            assert [standstill.look() for _ in range(3)] == [None, None, Behind([], [0, 1, 2])]
    assert [standstill.look() for _ in range(4)] == [None] * 4


def test_it_says_where_it_stands(tmp_path: Path):
    prepare(tmp_path, 1)
    child = os.fork()
    if child == 0:
        Progress(tmp_path, 0)
        hangs_here()
    try:
        until = time.monotonic() + 60
        while not (tmp_path / "pid-0").exists() and time.monotonic() < until:
            time.sleep(0.01)
        place = ""
        while "hangs_here" not in place and time.monotonic() < until:
            place = line_of(where_it_stands(tmp_path, 0))
        assert place.startswith(f"{__file__}:")
        assert place.endswith(", in hangs_here")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_rank_of_another_launcher_is_left_alone(tmp_path: Path):
    with Progress(None, 0), Progress(tmp_path, 1):
        pass
    assert list(tmp_path.iterdir()) == []

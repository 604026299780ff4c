"""The stages come in their order, each as long as asked, and begin again when a step becomes something else."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from vivace.measure.inside.stages.course import Course
from vivace.measure.inside.steps.recorder import Recorder
from vivace.measure.inside.training import Training
from vivace.protocol.request import ProcessRequest

WITHOUT_EXTRAS = {"profile_steps": 0, "sync_steps": 0, "count_flops": False, "warmup_steps": 2}


@pytest.fixture(autouse=True)
def _nothing_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, by another test: FLOPs of a compiled model are counted elsewhere."""
    if (dynamo := sys.modules.get("torch._dynamo.utils")) is not None:
        monkeypatch.setitem(dynamo.counters, "frames", Counter())


class Driven:
    """A course over a training that nobody runs: steps are only marked."""

    def __init__(self, folder: Path, **asked: Any) -> None:
        self.saved: list[str] = []
        recorder = Recorder()
        recorder.arm(torch.device("cpu"))
        self.training = Training(ProcessRequest(folder=str(folder), **{**WITHOUT_EXTRAS, **asked}), recorder)
        self.course = Course(self.training, save=lambda: self.saved.append(self.course.says))
        self.course.start()

    def step(self) -> None:
        self.training.recorder.mark("opt-", {"ends_step": True, "skipped": False, "by": 0})
        self.training.steps += 1
        self.course.step()

    def walk(self, steps: int = 100) -> list[tuple[str, int]]:
        """What each step was for: (stage, how many in a row)."""
        said = []
        for _ in range(steps):
            if self.course.is_over:
                break
            said.append(self.course.says)
            self.step()
        return [(says, len(list(run))) for says, run in itertools.groupby(said)]


def test_warm_up_then_the_timed_steps_and_no_more_than_was_asked(tmp_path: Path):
    driven = Driven(tmp_path, steps=5)
    assert driven.walk() == [("warming up", 2), ("measuring", 5)]
    assert driven.course.says == "done"
    window = driven.course.window
    assert (window.steps_before, window.first_mark, window.last_mark) == (2, 2, 8)  # the first mark is an opening one
    assert window.is_whole


@pytest.mark.parametrize("profile_steps", [0, 2])
def test_norms_come_before_the_profiler_and_only_where_they_are_asked_for(tmp_path: Path, profile_steps: int):
    driven = Driven(tmp_path, steps=3, grad_norms=True, profile_steps=profile_steps)
    after = [("profiling", 2)] if profile_steps else []
    assert driven.walk() == [("warming up", 2), ("measuring", 3), ("recording gradient norms", 8), *after]
    assert (driven.course.profiler.seen is not None) == bool(profile_steps)


def test_flops_are_counted_in_one_step_of_the_warm_up_that_does_not_count(tmp_path: Path):
    driven = Driven(tmp_path, steps=3, count_flops=True, warmup_steps=3)
    assert driven.walk() == [("warming up", 2), ("counting FLOPs", 1), ("warming up", 1), ("measuring", 3)]
    assert driven.course.counted.number == 2
    assert driven.saved == []


def test_norms_are_not_taken_in_timed_steps_nor_while_flops_are_counted(tmp_path: Path):
    driven = Driven(tmp_path, steps=2, count_flops=True, warmup_steps=3, grad_norms=True)
    takes = {}
    while not driven.course.is_over:
        stage = driven.course.stage
        assert stage is not None
        takes[stage.says] = stage.takes_norms
        driven.step()
    assert takes == {
        "warming up": True, "counting FLOPs": False, "measuring": False, "recording gradient norms": True
    }  # fmt: skip


def test_a_new_kind_of_step_begins_again_but_not_for_ever(tmp_path: Path):
    driven = Driven(tmp_path, steps=5)
    for _ in range(3):
        assert driven.walk(4) == [("warming up", 2), ("measuring", 2)]
        driven.course.begin_again()
        assert driven.course.window.first_mark is None
    assert driven.walk(4) == [("warming up", 2), ("measuring", 2)]
    driven.course.begin_again()
    assert driven.walk() == [("measuring", 3)]
    assert driven.course.window.steps_before == 14


def test_a_step_whose_flops_were_being_counted_is_forgotten_when_all_begins_again(tmp_path: Path):
    driven = Driven(tmp_path, steps=2, count_flops=True, warmup_steps=3)
    driven.walk(2)
    assert driven.course.says == "counting FLOPs"
    driven.course.begin_again()
    assert driven.course.counted.count is None
    assert driven.walk() == [("warming up", 1), ("counting FLOPs", 1), ("warming up", 2), ("measuring", 2)]


def test_after_the_window_nothing_begins_again(tmp_path: Path):
    driven = Driven(tmp_path, steps=2, grad_norms=True)
    driven.walk(6)
    assert driven.course.says == "recording gradient norms"
    driven.course.begin_again()
    assert driven.course.says == "recording gradient norms"
    assert driven.course.window.is_whole

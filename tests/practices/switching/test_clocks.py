"""Steps on a GPU are timed with events: marks never wait, and are read outside of what is timed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from vivace.practices.switching.clocks import EventClock, HostClock, clock_for
from vivace.practices.switching.pairs import estimate
from vivace.practices.switching.windows import Windows


class Gpu:
    """A GPU's timeline. The host is told to wait for it in ``waits``."""

    now_ms = 0.0
    waits = 0

    def event(self, enable_timing: bool) -> Any:
        assert enable_timing
        gpu = self

        class Event:
            def record(self) -> None:
                self.at_ms = gpu.now_ms

            def synchronize(self) -> None:
                gpu.waits += 1

            def elapsed_time(self, other: Any) -> float:
                return float(other.at_ms - self.at_ms)

        return Event()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    monkeypatch.setattr(torch.cuda, "Event", made.event)
    return made


def test_no_mark_waits_for_the_gpu(gpu: Gpu):
    clock = EventClock()
    windows = Windows(0.1, clock)
    for _ in range(60):
        gpu.now_ms += 50.0 if windows.arm_is_on else 100.0
        windows.step(clock.mark() if windows.reads_clock() else None)
    assert windows.pairs >= 16
    assert gpu.waits == 0
    seconds = windows.seconds
    assert gpu.waits == sum(map(len, seconds.values()))
    assert estimate(seconds[False], seconds[True]).ratio == pytest.approx(2.0)


def test_a_wait_for_the_figures_is_not_timed(gpu: Gpu):
    clock = EventClock()
    windows = Windows(0.1, clock)
    for _ in range(60):
        gpu.now_ms += 100.0
        windows.step(clock.mark() if windows.reads_clock() else None)
        if windows.whole:
            assert windows.spans[False]
            windows.drop_a_step()
            gpu.now_ms += 1000.0  # the GPU has nothing to do meanwhile
    assert {round(second, 6) for seconds in windows.seconds.values() for second in seconds} == {0.1}


def test_a_model_on_the_host_is_timed_by_the_host():
    assert isinstance(clock_for([nn.Linear(2, 2)]), HostClock)
    assert isinstance(clock_for([]), HostClock)


def test_a_model_on_a_gpu_is_timed_by_events(monkeypatch: pytest.MonkeyPatch):
    model = nn.Linear(2, 2)
    monkeypatch.setattr(model, "parameters", lambda: iter([type("OnGpu", (), {"is_cuda": True})()]))
    assert isinstance(clock_for([model]), EventClock)

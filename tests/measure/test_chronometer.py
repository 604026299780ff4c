"""The Chronometer: literal output, what each span means, and no synchronisation on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch

import vivace
from vivace.errors import UserError
from vivace.measure import chronometer
from vivace.measure.chronometer import DRAIN_EVERY, Chronometer

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(vivace.__file__).parents[1])}


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def after(self, seconds: float) -> None:
        self.now_s += seconds


def run_steps(chrono: Chronometer, clock: Clock, steps: list[tuple[float, float, float]]) -> None:
    """Steps of (loading, forward, backward) seconds, as a loop calls them."""
    chrono.next_iter()
    for load, forward, backward in steps:
        clock.after(load)
        chrono.forward()
        clock.after(forward)
        chrono.backward()
        clock.after(backward)
        chrono.update()
        chrono.next_iter()


@pytest.fixture
def no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chronometer, "_nvml_power_reader", lambda: None)


STEPS = [(8.0, 16.0, 32.0), (0.25, 0.5, 1.0), (0.75, 1.5, 2.0), (0.5, 0.25, 0.25), (0.5, 0.75, 0.75)]


def test_display_prints_the_literal_block(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    watts = iter([[900.0, 900.0], [310.5, 300.0], [305.25, 402.125], [1.0, 1.0], [2.0, 2.0]])
    chrono = Chronometer("cpu", clock=clock, power=lambda: next(watts))
    chrono.start()
    run_steps(chrono, clock, STEPS)
    chrono.validation()
    clock.after(40.0)
    chrono.validation(steps=20)
    clock.after(0.5)
    chrono.stop()
    clock.after(1000.0)
    chrono.display(val_steps=196)
    # By hand, first step left out: steps 1.5, 3.5, 0.5, 1.5 (median 1.5, mean 1.75), loads 0.25, 0.75, 0.5,
    # 0.5; in all 65 s of steps and loads, 40 s of validation and 0.5 s.
    # Deviations: steps sqrt((0.0625 + 3.0625 + 1.5625 + 0.0625) / 4); loads sqrt(0.125 / 4);
    # forward 0.5, 1.5, 0.25, 0.75 (mean 0.75); backward 1, 2, 0.25, 0.75 (mean 1).
    assert capsys.readouterr().out == (
        ">>> Training complete in: 0:01:45.500000\n"
        ">>> Training performance time: min 0.5 avg 1.5 seconds (+/- 1.0897247358851685)\n"
        ">>> Loading performance time: min 0.25 avg 0.5 seconds (+/- 0.1767766952966369)\n"
        ">>> Forward performance time: 0.75 seconds (+/- 0.46770717334674267)\n"
        ">>> Backward performance time: 1.0 seconds (+/- 0.6373774391990981)\n"
        ">>> Peak Power during training: 402.125 W)\n"
        ">>> Validation time estimation: 0:06:32\n"
        ">>> Sortie trace #####################################\n"
        '>>>JSON {"GPU process - Forward/Backward": [48.0, 1.5, 3.5, 0.5, 1.5], '
        '"CPU process - Dataloader": [8.0, 0.25, 0.75, 0.5, 0.5]}\n'
    )


def test_raw_series_keep_the_first_step(no_nvml: None) -> None:
    clock = Clock()
    chrono = Chronometer("cpu", clock=clock)
    run_steps(chrono, clock, STEPS[:2])
    assert chrono.training_s == [48.0, 1.5]
    assert chrono.loading_s == [8.0, 0.25]
    assert chrono.forward_s == [16.0, 0.5]
    assert chrono.backward_s == [32.0, 1.0]


def test_without_a_timed_step_only_the_whole_is_told(no_nvml: None) -> None:
    clock = Clock()
    chrono = Chronometer("cpu", clock=clock)
    clock.after(2.0)
    chrono.stop()
    assert chrono.report() == ">>> Training complete in: 0:00:02"


def test_statistics_without_a_second_step_are_nan(no_nvml: None) -> None:
    clock = Clock()
    chrono = Chronometer("cpu", clock=clock)
    run_steps(chrono, clock, STEPS[:1])
    lines = chrono.report().splitlines()
    assert lines[1] == ">>> Training performance time: min nan avg nan seconds (+/- nan)"
    assert lines[2] == ">>> Loading performance time: min nan avg nan seconds (+/- nan)"
    assert lines[3] == ">>> Forward performance time: nan seconds (+/- nan)"
    assert lines[5] == ">>> Peak Power during training: not measured"
    assert len(json.loads(lines[-1].removeprefix(">>>JSON "))["CPU process - Dataloader"]) == 1


def test_whole_validation_is_printed_as_its_time(no_nvml: None) -> None:
    clock = Clock()
    chrono = Chronometer("cpu", clock=clock)
    assert chrono.val_time is None
    assert "Validation" not in chrono.report(val_steps=10)
    chrono.validation()
    clock.after(90.0)
    chrono.validation()
    assert chrono.val_time == timedelta(seconds=90)
    assert ">>> Validation time: 0:01:30" in chrono.report().splitlines()


def test_validation_and_logging_are_not_loading(no_nvml: None) -> None:
    clock = Clock()
    chrono = Chronometer("cpu", clock=clock)
    chrono.next_iter()
    for _ in range(2):
        clock.after(1.0)
        chrono.forward()
        clock.after(2.0)
        chrono.update()
        clock.after(16.0)
        chrono.validation()
        clock.after(32.0)
        chrono.validation()  # no next_iter() in this loop
    assert chrono.loading_s == [1.0, 1.0]
    assert chrono.forward_s == []  # backward() was never called


def test_loading_runs_from_update_when_next_iter_is_not_called(no_nvml: None) -> None:
    clock = Clock()
    chrono = Chronometer("cpu", clock=clock)
    chrono.start()
    for load in (4.0, 0.5, 0.25):
        clock.after(load)
        chrono.forward()
        clock.after(1.0)
        chrono.update()
    assert chrono.loading_s == [4.0, 0.5, 0.25]


def test_reading_the_power_is_neither_training_nor_loading() -> None:
    clock = Clock()

    def slow_power() -> list[float]:
        clock.after(10.0)
        return [300.0]

    chrono = Chronometer("cpu", clock=clock, power=slow_power)
    for _ in range(3):
        clock.after(0.5)
        chrono.forward()
        clock.after(1.0)
        chrono.update()
    assert chrono.loading_s == [0.5, 0.5, 0.5]
    assert chrono.training_s == [1.0, 1.0, 1.0]
    assert chrono.power_w == [[300.0]] * 3


def test_power_is_sampled_at_most_ten_times_a_second() -> None:
    clock = Clock()
    chrono = Chronometer("cpu", clock=clock, power=lambda: [250.0])
    run_steps(chrono, clock, [(0.0, 1 / 64, 1 / 64)] * 64)  # two seconds of short steps
    assert len(chrono.power_w) == 16  # 0.1 s rounded up to a whole step of 1/32 s: one sample per four steps


def test_tac_time_measures_from_call_to_call(no_nvml: None) -> None:
    clock = Clock()
    chrono = Chronometer("cpu", clock=clock)
    assert chrono.tac_time() is None
    clock.after(2.0)
    assert chrono.tac_time() == 2.0
    clock.after(3.0)
    assert chrono.tac_time(clear=True) is None
    clock.after(4.0)
    assert chrono.tac_time() == 4.0


@pytest.mark.parametrize("call", ["backward", "update"])
def test_a_step_that_never_began_is_an_error_with_a_hint(call: str, no_nvml: None) -> None:
    with pytest.raises(UserError, match=r"call forward\(\)"):
        getattr(Chronometer("cpu"), call)()


class FakeEvent:
    """A CUDA event of a GPU that runs ``lag_s`` behind the host and finishes only when it is waited for."""

    waits = 0
    finished = False

    def __init__(self, gpu_s: float) -> None:
        self.gpu_s = gpu_s

    def query(self) -> bool:
        return FakeEvent.finished

    def synchronize(self) -> None:
        FakeEvent.waits += 1

    def elapsed_time(self, end: FakeEvent) -> float:
        return (end.gpu_s - self.gpu_s) * 1000


@pytest.fixture
def gpu_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(chronometer, "_recorded_event", lambda device: FakeEvent(clock.now_s))
    monkeypatch.setattr(FakeEvent, "waits", 0)
    monkeypatch.setattr(FakeEvent, "finished", False)
    return clock


def test_on_a_gpu_the_figures_are_gpu_time_and_are_read_only_when_asked(gpu_clock: Clock, no_nvml: None) -> None:
    host = Clock()  # stands still: the host enqueues at once
    chrono = Chronometer("cuda", clock=host)
    run_steps(chrono, gpu_clock, STEPS * 40)
    assert FakeEvent.waits == 0
    assert chrono.training_s[:3] == [48.0, 1.5, 3.5]
    assert chrono.loading_s[:3] == [8.0, 0.25, 0.75]
    assert len(chrono.training_s) == 200
    assert FakeEvent.waits > 0


def test_finished_events_are_freed_during_a_long_run(gpu_clock: Clock, no_nvml: None) -> None:
    FakeEvent.finished = True
    chrono = Chronometer("cuda", clock=Clock())
    run_steps(chrono, gpu_clock, [(0.5, 0.5, 0.5)] * (DRAIN_EVERY + 1))
    assert len(chrono._pending) == 1
    assert chrono.training_s == [1.0] * (DRAIN_EVERY + 1)


def test_without_a_device_the_host_clock_serves_until_cuda_is_used(
    gpu_clock: Clock, no_nvml: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Clock()
    used = False
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: used)
    chrono = Chronometer(clock=host)
    host.after(3.0)
    used = True
    run_steps(chrono, gpu_clock, [(1.0, 2.0, 4.0)])
    assert chrono.training_s == [6.0]
    assert chrono.loading_s == [1.0]


def test_importing_it_loads_neither_torch_nor_pydantic() -> None:
    code = (
        "import sys, vivace; vivace.Chronometer(); "
        "print([m for m in ('torch', 'pydantic', 'rich', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert result.stdout == "[]\n"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_real_events_time_the_gpu_and_not_the_host() -> None:
    chrono = Chronometer()
    cycles = 20_000_000  # more than 5 ms at any clock rate of a GPU (below 4 GHz)
    torch.cuda.init()
    torch.cuda.set_sync_debug_mode("error")
    try:
        chrono.next_iter()
        for _ in range(3):
            chrono.forward()
            torch.cuda._sleep(cycles)
            chrono.backward()
            torch.cuda._sleep(2 * cycles)
            chrono.update()
            chrono.next_iter()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert min(chrono.forward_s) > 0.005
    assert min(chrono.backward_s) > 0.010
    assert chrono.training_s[2] == pytest.approx(chrono.forward_s[2] + chrono.backward_s[2], abs=1e-4)
    assert max(chrono.loading_s) < min(chrono.training_s)  # the host ran ahead: nothing was waited for

"""One record from what the ranks saw, whatever part of it is missing. On GPUs, too, which this machine may not have."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from practices.evidence import measurement
from report.made import in_terminal

from vivace.measure.merge import merge
from vivace.practices.ddp_options import _exposed_communication_ms
from vivace.protocol.payload import Payload, SeenDevice, SeenFlops, Series
from vivace.records.measurement import Measurement
from vivace.report.terminal import measurement_view

H200 = SeenDevice(name="NVIDIA H200", uuid="GPU-1", memory_gib=139.8, sm_count=132, compute_capability="9.0")
FLOPS = SeenFlops(model=10**12, hardware=10**12, by_type={"bf16": 10**12}, forwards=1)
STEPS = Series(step=[10.0, 10.0], phases={"forward": [4.0, 4.0], "backward": [6.0, 6.0]})


def merged(*payloads: Payload) -> Measurement:
    return merge(payloads, measurement().machine, ["python", "train.py"], {}, "folder", "2026-01-01T00:00:00+00:00")


@pytest.mark.parametrize(
    ("devices", "flops", "series"), list(itertools.product(([], [H200]), (None, FLOPS), (Series(), STEPS)))
)
def test_a_record_is_made_whatever_is_missing(devices: list, flops: SeenFlops | None, series: Series):
    record = merged(Payload(devices=devices, flops=flops, series=series))
    assert record.steps == len(series.step)
    assert (record.flops is None) == (flops is None)
    assert record.devices == tuple(device.name for device in devices)
    if devices and flops is not None and series.step:
        assert record.mfu == pytest.approx(100 / 989.4, rel=1e-3)  # 1 TFLOP in 10 ms
    else:
        assert record.mfu is None


def rank(number: int, computing: float, waiting: float) -> Payload:
    phases = {"forward": [computing] * 2, "backward": [10.0] * 2, "communication": [waiting] * 2}
    return Payload(rank=number, world=2, series=Series(step=[computing + 10.0 + waiting] * 2, phases=phases))


@pytest.mark.parametrize(("first", "second"), [((20.0, 2.0), (5.0, 17.0)), ((5.0, 17.0), (20.0, 2.0))])
def test_communication_is_the_same_whichever_rank_is_late(first: tuple[float, float], second: tuple[float, float]):
    """By the figures of one rank it would be 2 of 32 ms in one run and 17 of 32 in the next."""
    record = merged(rank(0, *first), rank(1, *second))
    assert record.phases_ms["communication"].mean == pytest.approx(9.5)
    assert record.waiting_for_ranks_ms == pytest.approx(7.5)  # so the exchange itself takes 2 ms
    assert record.step_ms is not None
    assert sum(phase.mean for phase in record.phases_ms.values()) == pytest.approx(record.step_ms.mean)
    assert "2.0 ms per step for the exchange that is not hidden, 7.5 ms waiting for the slowest rank" in in_terminal(
        measurement_view(record, "x"), width=200
    )


def test_a_rank_that_ended_early_does_not_shorten_the_others():
    short = rank(1, 5.0, 17.0)
    record = merged(rank(0, 20.0, 2.0), replace(short, series=short.series.mapped(lambda values: values[:1])))
    assert (record.steps, record.waiting_for_ranks_ms) == (2, None)


def test_one_rank_waits_for_nobody():
    assert merged(Payload(series=STEPS)).waiting_for_ranks_ms is None


def test_ddp_options_are_not_priced_with_the_wait_for_a_slow_rank():
    waiting = measurement(on_gpu=False, phases={"communication": 40.0}, waiting_for_ranks_ms=38.0)
    assert _exposed_communication_ms(waiting) == pytest.approx(2.0)

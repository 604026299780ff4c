"""One record from what the ranks saw, whatever part of it is missing. On GPUs, too, which this machine may not have."""

from __future__ import annotations

import itertools

import pytest
from practices.evidence import measurement

from vivace.measure.merge import merge
from vivace.protocol.payload import Payload, SeenDevice, SeenFlops, Series
from vivace.records.measurement import Measurement

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

"""The model of a step: what is saved counts only where it is the limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from practices.evidence import measurement

from vivace.practices.engine.step_model import (
    PROFILED_HOST,
    Less,
    Shares,
    StepModel,
    likely_saved,
    share_saved,
    step_model,
)
from vivace.records.measurement import Sync

times = st.floats(0, 1000)
READ = Sync(file="train.py", line=3, code="loss.item()", per_step=1.0)


def model_of(host: float, device: float, loader: float = 0.0, gap: float = 0.0, supply: float = 0.0) -> StepModel:
    step = max(supply, loader + max(host, device) + gap)
    return StepModel(step, host, device, loader, gap, supply)


def test_time_of_the_gpu_saves_nothing_where_the_host_is_the_limit():
    assert model_of(host=10.0, device=4.0).saved_ms(Less(device_ms=3.0)) == 0.0


def test_after_a_fix_the_next_limit_appears():
    assert model_of(host=6.0, device=20.0).after(Less(device_ms=18.0)) == 6.0


def test_workers_that_set_the_pace_hide_what_the_model_saves():
    model = model_of(host=10.0, device=50.0, loader=30.0, supply=80.0)
    assert model.saved_ms(Less(device_ms=25.0)) == 0.0


@given(host=times, device=times, loader=times, gap=times, less=st.floats(0, 1), more=st.floats(0, 1))
def test_taking_more_away_never_saves_less(host, device, loader, gap, less, more):
    model = model_of(host, device, loader, gap)
    some = Less(less * host, less * device, less * loader, less)
    all_of_it = Less(*(value + more * (1 - less) * whole for value, whole in (
        (some.host_ms, host), (some.device_ms, device), (some.loader_ms, loader), (some.gap, 1.0),
    )))  # fmt: skip
    assert -1e-6 <= model.saved_ms(some) <= model.saved_ms(all_of_it) + 1e-6


def test_a_gpu_that_idles_without_a_sync_waits_for_the_host():
    model = step_model(measurement(step_ms=100.0, roles={"matmul": 40.0}))
    assert (model.host_ms, model.device_ms, model.gap_ms) == (100.0, 40.0, 0.0)


def test_with_a_sync_the_profile_tells_what_the_host_needs():
    """40 ms of kernels, 30 of launching, and 34.5 in which the GPU waits for the host after a read."""
    m = measurement(step_ms=74.5, roles={"matmul": 40.0}, profile={"host_ms_per_step": 30.0}, syncs=(READ,))
    model = step_model(m)
    assert model.host_ms == pytest.approx(30.0 * PROFILED_HOST)
    assert model.gap_ms == pytest.approx(34.5)
    assert likely_saved(m, Less(gap=1.0), Less(), Less(gap=1.0)).ms == pytest.approx(34.5)


def test_on_a_cpu_all_computing_is_the_hosts():
    model = step_model(measurement(on_gpu=False, step_ms=100.0, phases={"loader": 20.0, "forward": 80.0}))
    assert (model.host_ms, model.device_ms, model.loader_ms) == (80.0, 0.0, 20.0)


def test_shares_of_a_wait():
    saved = share_saved(40.0, Shares(0.5, -0.1, 1.0))
    assert (saved.ms, saved.low_ms, saved.high_ms) == (20.0, -4.0, 40.0)

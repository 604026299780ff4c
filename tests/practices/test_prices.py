"""Likely speedups of the practices on evidence built by hand, and on every pair that was recorded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from practices.evidence import measurement

from vivace.practices import bf16, compile, debug_off, no_syncs, tf32, workers
from vivace.practices.engine.practice import Found
from vivace.records.measurement import Measurement, Sync

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ITEM = Sync(file="train.py", line=3, code="loss.item()", per_step=1.0)
LOADER = {
    "batch_size": 64, "num_workers": 0, "pin_memory": False, "persistent_workers": False, "prefetch_factor": None,
    "iterable": False,
}  # fmt: skip


def saved_ms(found: Found | None) -> float:
    assert found is not None
    assert found.likely is not None
    assert found.likely.low_ms <= found.likely.ms <= found.likely.high_ms
    return found.likely.ms


def host_bound(**changes) -> Measurement:
    """100 ms per step, of which the GPU is busy for 40, and nothing to wait for but the host."""
    return measurement(step_ms=100.0, roles={"matmul": 30.0, "elementwise": 10.0}, flops={"fp32": 10**12}, **changes)


def gpu_bound(**changes) -> Measurement:
    """100 ms of kernels at 50 TFLOP/s; the host needs a tenth of that."""
    return measurement(
        step_ms=100.0, roles={"matmul": 80.0, "elementwise": 20.0}, flops={"fp32": 4 * 10**12},
        profile={"host_ms_per_step": 15.0, "host_waits_ms_per_step": 85.0}, **changes,
    )  # fmt: skip


def test_casts_slow_a_host_down_that_is_the_limit():
    assert saved_ms(bf16.find(host_bound())) == pytest.approx(-20.0)


def test_large_products_in_tf32_take_the_ratio_of_the_rates_that_are_reached():
    """80 ms at the 0.75 of 66.9 TFLOP/s that large products reach; 0.57 of 494.7 then."""
    left = 80.0 * (0.75 * 66.9) / (0.57 * 494.7)
    assert saved_ms(tf32.find(gpu_bound())) == pytest.approx(80.0 - left, rel=0.02)


def test_compiled_code_launches_no_faster_without_graphs():
    found = compile.find(gpu_bound())
    assert saved_ms(found) == pytest.approx(0.7 * 20.0)
    assert found is not None
    assert found.setting is None


def test_graphs_save_what_launching_forward_and_backward_takes():
    found = compile.find(host_bound(phases={"forward": 40.0, "backward": 50.0, "optimizer": 10.0}))
    assert found is not None
    assert found.setting == "compile=reduce-overhead"
    # 81 of the 90 ms, less the replay; but the GPU is still busy for 40 less what is fused.
    assert saved_ms(found) == pytest.approx(100.0 - (40.0 - 0.7 * 10.0))


def test_one_read_a_step_costs_little_where_the_host_is_the_limit():
    assert saved_ms(no_syncs.find(host_bound(syncs=(ITEM,), profile={"host_waits_ms_per_step": 0.1}))) < 0.1


def test_the_gap_after_a_read_is_what_it_costs():
    m = measurement(
        step_ms=100.0, roles={"matmul": 70.0}, syncs=(ITEM,),
        profile={"host_ms_per_step": 50.0, "host_waits_ms_per_step": 40.0},
    )  # fmt: skip
    assert saved_ms(no_syncs.find(m)) == pytest.approx(30.0)


def test_without_anomaly_detection_the_gpu_may_be_the_limit():
    m = measurement(
        step_ms=100.0, roles={"matmul": 50.0}, phases={"forward": 60.0, "backward": 40.0},
        structure={"debugging": ("anomaly detection",)},
    )  # fmt: skip
    assert saved_ms(debug_off.find(m)) == pytest.approx(50.0)


def test_workers_are_limited_by_the_rest_of_the_step_and_by_their_number():
    fed = measurement(step_ms=100.0, phases={"loader": 80.0, "forward": 20.0}, loaders=(LOADER,))
    assert saved_ms(workers.find(fed)) == pytest.approx(100.0 - (1.15 * 20.0 + 0.5))
    slow = measurement(step_ms=1000.0, phases={"loader": 980.0, "forward": 20.0}, loaders=(LOADER,))
    assert saved_ms(workers.find(slow)) == pytest.approx(1000.0 - 980.0 / (8 * 0.65))


def test_no_price_of_a_recorded_measurement_is_above_its_bound():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from price_errors import recomputed
    finally:
        sys.path.remove(str(BENCHMARKS))
    rows = [row for row in recomputed(BENCHMARKS / "results") if "likely" in row]
    assert rows
    assert all(row["low"] <= row["likely"] <= row["high"] <= row["bound"] + 1e-3 for row in rows)
    assert sum(row["within_25"] for row in rows) >= 0.8 * len(rows)
    assert all(row["bound"] >= row["gain_low"] for row in rows)

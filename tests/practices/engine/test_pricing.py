"""Figures that prices rest on: kernels scaled to the steps that were timed, idle time that stays a bound."""

from __future__ import annotations

import pytest
from practices.evidence import measurement

from vivace.practices.engine.pricing import busy_ms, idle_ms, role_ms


def test_kernels_of_longer_profiled_steps_are_scaled_to_the_timed_ones():
    m = measurement(step_ms=50.0, roles={"matmul": 80.0, "norm": 20.0}, input_shapes=9, profile={"busy_share": 0.9})
    assert role_ms(m, "matmul") == pytest.approx(40.0)
    assert busy_ms(m) == pytest.approx(50.0)
    assert idle_ms(m) == pytest.approx(5.0)


def test_with_equal_inputs_a_gpu_that_is_busy_all_the_time_is_not_idle_whatever_profiling_cost():
    m = measurement(step_ms=50.0, roles={"matmul": 51.0}, profile={"busy_share": 0.6})
    assert idle_ms(m) == 0.0


def test_communication_beside_the_kernels_does_not_shrink_them():
    m = measurement(roles={"matmul": 80.0, "elementwise": 15.0, "communication": 40.0})
    assert role_ms(m, "matmul", "elementwise") == pytest.approx(95.0)
    assert idle_ms(m) == 0.0


def test_what_runs_beside_the_kernels_is_counted_once():
    """70 ms of kernels, 30 ms of communication hidden behind them: the GPU still waits 30 of 100 ms."""
    hidden = {"busy_share": 0.7, "idle_ms_per_step": 30.0}
    m = measurement(roles={"matmul": 70.0, "communication": 30.0}, profile=hidden)
    assert busy_ms(m) == pytest.approx(70.0)
    assert idle_ms(m) == pytest.approx(30.0)


def test_kernels_that_run_beside_each_other_are_not_scaled_twice():
    """An LSTM's: 21 ms of kernels on several streams in 18 of 18.3 ms."""
    m = measurement(step_ms=18.3, roles={"recurrent": 21.0}, profile={"busy_share": 18 / 18.3, "idle_ms_per_step": 0.3})
    assert busy_ms(m) == pytest.approx(18.0)


def test_on_a_cpu_shares_of_forward_and_backward_are_taken():
    m = measurement(on_gpu=False, phases={"forward": 10.0, "backward": 20.0}, roles={"matmul": 30.0, "norm": 30.0})
    assert role_ms(m, "matmul") == pytest.approx(15.0)

"""Ratios and their intervals: laws that hold whatever the step times are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from practices.evidence import measurement

from vivace.records.measurement import Measurement
from vivace.tune.comparison import compare, ratio_of

step_times = st.lists(st.floats(1.0, 1000.0), min_size=2, max_size=40)


def run(steps_ms: list[float]) -> Measurement:
    mean = sum(steps_ms) / len(steps_ms)
    return measurement(step_ms=mean, samples_per_s=64e3 / mean, series_ms={"step": tuple(steps_ms)})


@given(step_times, step_times)
def test_the_interval_holds_its_median_and_every_round(first: list[float], second: list[float]):
    pairs = [(run(first), run(second)), (run(second), run(first))]
    interval = compare(pairs)
    assert interval.low <= interval.median <= interval.high
    for before, after in pairs:
        assert interval.low <= ratio_of(before, after) <= interval.high


@given(step_times)
def test_a_run_is_as_fast_as_itself(steps: list[float]):
    assert compare([(run(steps), run(steps))]).median == pytest.approx(1.0)


def test_half_the_step_time_is_twice_the_speed_and_steady_steps_leave_no_doubt():
    interval = compare([(run([10.0] * 20), run([5.0] * 20))] * 3)
    assert (interval.low, interval.median, interval.high) == pytest.approx((2.0, 2.0, 2.0))


def test_unsteady_steps_widen_the_interval():
    unsteady = run([5.0, 15.0] * 10)
    interval = compare([(unsteady, unsteady)])
    assert interval.low < 0.99
    assert interval.high > 1.01


def test_samples_count_not_steps():
    small, large = measurement(step_ms=10.0, samples_per_s=100.0), measurement(step_ms=20.0, samples_per_s=300.0)
    assert ratio_of(small, large) == pytest.approx(3.0)

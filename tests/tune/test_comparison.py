"""Ratios and their intervals: laws that hold whatever the step times are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from practices.evidence import measurement

from vivace.records.measurement import Measurement
from vivace.tune.comparison import compare, ratio_of, run_noise

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
    interval = compare([(run([5.0, 15.0] * 10), run([5.0, 15.0] * 10))])
    assert interval.low < 0.99
    assert interval.high > 1.01


def test_a_whole_run_that_was_slow_by_chance_widens_it_where_the_rounds_cannot_show_that():
    """Three runs of the same job on an unsteady host: 9.35, 9.49 and 11.01 thousand samples a second."""
    noise = run_noise([measurement(step_ms=10.0, samples_per_s=speed) for speed in (9351.0, 9494.0, 11010.0)])
    assert noise == pytest.approx(0.09, abs=0.005)
    pair = (run([12.1] * 20), run([10.0] * 20))
    assert compare([pair]).low == pytest.approx(1.21)
    wide = compare([pair], noise)
    # 1.96 standard deviations of the difference of two such runs: 0.25 in the logarithm
    assert (wide.low, wide.high) == pytest.approx((0.94, 1.55), abs=0.04)
    assert run_noise([pair[0]]) == 0.0


def test_a_run_that_is_in_several_pairs_has_one_fate():
    """One run against three: its own chance does not average out."""
    shared, others = run([10.0] * 20), [run([20.0] * 20) for _ in range(3)]
    once = compare([(others[0], shared)], 0.05)
    together = compare([(other, shared) for other in others], 0.05)
    apart = compare([(other, run([10.0] * 20)) for other in others], 0.05)
    width = [interval.high / interval.low for interval in (apart, together, once)]
    assert width[0] < width[1] < width[2]


def test_samples_count_not_steps():
    small, large = measurement(step_ms=10.0, samples_per_s=100.0), measurement(step_ms=20.0, samples_per_s=300.0)
    assert ratio_of(small, large) == pytest.approx(3.0)

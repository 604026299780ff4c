"""Ratios and their intervals: figures worked by hand, and laws that hold whatever the runs are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from practices.evidence import measurement

from vivace.records.measurement import Measurement
from vivace.tune.comparison import Pair, by_pairs, by_single_runs, ratio_of, stands_out

step_times = st.lists(st.floats(1.0, 1000.0), min_size=2, max_size=40)
log_speeds = st.floats(-0.2, 0.2)


def run(steps_ms: Sequence[float]) -> Measurement:
    mean = sum(steps_ms) / len(steps_ms)
    return measurement(step_ms=mean, samples_per_s=64e3 / mean, series_ms={"step": tuple(steps_ms)})


def at(log_speed: float) -> Measurement:
    """A run with steady steps."""
    return run([100 * math.exp(-log_speed)] * 20)


def pairs_at(*logs: tuple[float, float]) -> list[Pair]:
    return [(at(before), at(after)) for before, after in logs]


def test_half_the_step_time_is_twice_the_speed_and_runs_that_all_agree_leave_no_doubt():
    interval = by_pairs([(run([10.0] * 20), run([5.0] * 20))] * 3, [run([10.0] * 20)] * 2).interval()
    assert (interval.low, interval.median, interval.high) == pytest.approx((2.0, 2.0, 2.0))


def test_one_pair_has_the_noise_of_the_unchanged_job():
    """Speeds of 1, 1.02 and 1.04 in the logarithm: 0.02 apart, with two degrees of freedom."""
    found = by_pairs(pairs_at((0.04, 0.24)), [at(0.0), at(0.02)])
    assert found.log_ratio == pytest.approx(0.2)
    assert (found.run_sd, found.freedom) == (pytest.approx(0.02), 2)
    assert found.half_width() == pytest.approx(4.3027 * 0.02 * math.sqrt(2), rel=1e-4)


def test_two_pairs_do_not_count_a_machine_that_changed_between_search_and_proof():
    found = by_pairs(pairs_at((0.5, 0.7), (0.52, 0.72)), [at(0.0), at(0.02)])
    # three groups of two runs, 0.02 apart: the search's and the baselines' (two degrees of freedom), the tuned (one)
    assert found.log_ratio == pytest.approx(0.2)
    assert (found.run_sd, found.freedom) == (pytest.approx(0.02 / math.sqrt(2)), pytest.approx(4 / (1 / 2 + 1 / 1)))
    # 1 / freedom = 0.375 lies a quarter of the way from 1/3 to 1/2, t from 3.1824 to 4.3027
    assert found.half_width() == pytest.approx(3.4625 * 0.02 / math.sqrt(2), rel=1e-4)


def test_a_noisier_side_counts_with_its_own_noise_and_its_own_few_runs():
    """The unchanged job repeats itself; the tuned runs lie 0.04 apart and have one degree of freedom."""
    found = by_pairs(pairs_at((0.0, 0.20), (0.0, 0.24)), [at(0.0), at(0.0)])
    assert found.log_ratio == pytest.approx(0.22)
    assert found.freedom == pytest.approx(1.0)
    assert found.half_width() == pytest.approx(12.706 * 0.02, rel=1e-4)


@given(st.integers(3, 8), st.floats(-0.05, 0.05), st.floats(-0.5, 0.5), st.floats(-0.5, 0.5))
def test_a_steady_drift_during_the_proof_moves_nothing(pairs: int, slope: float, gain: float, level: float):
    drifting: list[Pair] = []
    for number in range(pairs):
        first, second = level + slope * 2 * number, level + slope * (2 * number + 1)
        before, after = (first, second) if number % 2 == 0 else (second, first)
        drifting += pairs_at((before, after + gain))
    found = by_pairs(drifting, [at(0.0), at(0.0)])
    assert found.log_ratio == pytest.approx(gain, abs=1e-9)
    assert found.run_sd == pytest.approx(0.0, abs=1e-9)


@given(st.lists(st.tuples(log_speeds, log_speeds), min_size=1, max_size=6), log_speeds, log_speeds, st.floats(-1, 1))
def test_a_machine_that_is_faster_throughout_changes_nothing_and_a_faster_job_shifts_the_ratio(
    logs: list[tuple[float, float]], first: float, second: float, shift: float
):
    plain = by_pairs(pairs_at(*logs), [at(first), at(second)])
    faster = by_pairs(pairs_at(*((b + shift, a + shift) for b, a in logs)), [at(first + shift), at(second + shift)])
    tuned = by_pairs(pairs_at(*((b, a + shift) for b, a in logs)), [at(first), at(second)])
    assert (faster.log_ratio, faster.run_sd) == pytest.approx((plain.log_ratio, plain.run_sd), abs=1e-9)
    assert (tuned.log_ratio, tuned.run_sd) == pytest.approx((plain.log_ratio + shift, plain.run_sd), abs=1e-9)


@given(step_times, step_times)
def test_the_interval_holds_its_estimate(first: list[float], second: list[float]):
    interval = by_pairs([(run(first), run(second)), (run(second), run(first))], [run(first), run(first)]).interval()
    assert interval.low <= interval.median <= interval.high


def test_unsteady_steps_give_width_to_runs_that_happen_to_agree():
    """Blocks of ten: each step 5 % from the mean, ten alike in a row, so a mean over 100 steps is off by 0.016."""
    steps = ([95.0] * 10 + [105.0] * 10) * 5
    found = by_pairs([(run(steps), run(steps))] * 3, [run(steps)] * 2)
    assert found.run_sd == pytest.approx(0.0, abs=1e-12)
    one_run = found.step_error * math.sqrt(3 / 2)
    assert 0.005 < one_run < 0.016  # blocks of 5 see part of it
    assert found.half_width() == pytest.approx(1.96 * found.step_error, rel=1e-3)


def test_runs_that_were_not_taken_in_turn_carry_the_drift_of_the_session():
    unchanged = [at(0.0), at(0.02), at(0.06), at(0.08)]
    found = by_single_runs(unchanged[2:], [at(0.37)], [unchanged, [at(0.3)]])
    assert found.log_ratio == pytest.approx(0.3)
    assert (found.run_sd, found.freedom) == (pytest.approx(math.sqrt(0.004 / 3)), 3)
    assert found.half_width() == pytest.approx(3.1824 * math.sqrt(0.004 / 3) * math.sqrt(1.5), rel=1e-4)


def test_one_run_each_stands_out_from_the_noise_and_from_its_own_steps():
    assert stands_out(at(0.0), at(0.06), noise=0.05)
    assert not stands_out(at(0.0), at(0.04), noise=0.05)
    unsteady = run([50.0, 50.0, 50.0, 50.0, 50.0, 150.0, 150.0, 150.0, 150.0, 150.0])
    assert not stands_out(unsteady, run([94.0] * 10), noise=0.05)


def test_samples_count_not_steps():
    small, large = measurement(step_ms=10.0, samples_per_s=100.0), measurement(step_ms=20.0, samples_per_s=300.0)
    assert ratio_of(small, large) == pytest.approx(3.0)

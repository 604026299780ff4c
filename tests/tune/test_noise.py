"""What single runs can tell: laws over made-up runs, with steps that do not vary."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.made import made_measurement

from vivace.records.measurement import Measurement
from vivace.tune.noise import LARGEST_NOISE, Judgement, compare, compare_runs, noise_of, run_sd, runs_to_tell

SPEEDS = st.floats(1.0, 1e5)


def ran(per_s: float, steps_ms: tuple[float, ...] = (10.0,) * 20) -> Measurement:
    return made_measurement(10.0, samples_per_s=per_s, series_ms={"step": steps_ms})


@given(st.lists(SPEEDS, min_size=2, max_size=4), st.floats(0.0, 1.0))
def test_what_lies_between_runs_of_one_job_that_differ_a_lot_is_never_judged(speeds: list[float], place: float):
    low, high = min(speeds), max(speeds)
    compared = compare(ran(low * (high / low) ** place), [ran(one) for one in speeds], noise=0.0)
    if math.log(high / low) > LARGEST_NOISE:
        assert compared.judgement is Judgement.UNJUDGED
    else:
        assert compared.judgement is not Judgement.SLOWER or place == 0.0


@given(SPEEDS, st.floats(0.01, 0.95))
def test_between_equal_runs_what_is_much_slower_is_slower(per_s: float, ratio: float):
    compared = compare(ran(ratio * per_s), [ran(per_s), ran(per_s)], noise=0.0)
    assert compared.judgement is Judgement.SLOWER
    assert compared.ratio == pytest.approx(ratio)


@given(SPEEDS, st.floats(0.3, 3.0))
def test_a_noise_that_was_seen_elsewhere_in_the_search_counts(per_s: float, ratio: float):
    compared = compare(ran(ratio * per_s), [ran(per_s), ran(per_s)], noise=1.5)
    assert compared.judgement is Judgement.UNJUDGED


def test_steps_that_vary_leave_a_trial_without_a_judgement():
    """3 to 137 ms per step over 20 steps: the mean itself is not known to a fifth."""
    wild = (3.0, 137.0, 5.0, 4.0, 60.0, 3.0, 90.0, 3.0, 4.0, 3.0) * 2
    assert compare(ran(80.0, wild), [ran(100.0), ran(100.0)], noise=0.0).judgement is Judgement.UNJUDGED
    assert compare(ran(80.0), [ran(100.0), ran(100.0)], noise=0.0).judgement is Judgement.SLOWER


def test_a_slow_drift_is_no_noise_and_jumps_are():
    drifting = [ran(100.0 * 0.99**n) for n in range(20)]  # 17 % slower at the end
    jumping = [ran(speed) for speed in (100.0, 50.0, 100.0, 50.0)]
    assert noise_of([drifting]) == pytest.approx(1.96 * 0.01005 * math.sqrt(3) / 2, rel=1e-3)
    assert noise_of([jumping]) > math.log(2.0)
    assert noise_of([[ran(1.0)], [ran(9.0)]]) == 0.0  # runs of different sets are not compared


def between(runs: list[Measurement]) -> list[tuple[Measurement, list[Measurement]]]:
    """A trial after each reference, and a reference after each trial."""
    return [(runs[i], [runs[i - 1], runs[i + 1]]) for i in range(1, len(runs), 2)]


@given(st.floats(0.01, 0.5), st.floats(-0.5, 0.5))
def test_as_many_runs_as_are_said_to_suffice_are_always_judged(sd: float, log_ratio: float):
    count = runs_to_tell(sd)
    runs = [ran(100.0 * math.exp(log_ratio * (i % 2))) for i in range(2 * count + 1)]
    compared = compare_runs(between(runs), sd, seen=1000)
    assert compared.judgement is not Judgement.UNJUDGED
    assert compared.ratio == pytest.approx(math.exp(log_ratio))
    if abs(log_ratio) > LARGEST_NOISE:
        assert compared.judgement is (Judgement.FASTER if log_ratio > 0 else Judgement.SLOWER)


def test_chance_calls_what_brings_nothing_slower_in_one_of_forty():
    """Simulated as the search does it: trials between repeats, and the noise is known from these runs alone."""
    draws = random.Random(0)
    called = 0
    for _ in range(800):
        runs = [ran(100.0 * math.exp(draws.gauss(0.0, 0.3))) for _ in range(9)]
        compared = compare_runs(between(runs), run_sd([runs[::2], runs[1::2]]), seen=7)
        called += compared.judgement is Judgement.SLOWER
    assert called / 800 < 0.04

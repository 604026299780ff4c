"""When a proof is decided, goes on or gives up, and which interval it shows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.tune.comparison import Estimate
from vivace.tune.looks import MOST_PAIRS, is_proved, more_would_help, pairs_needed, speedup_of


def estimate(ratio: float, run_sd: float, pairs: int) -> Estimate:
    return Estimate(math.log(ratio), run_sd, 1.0, 1).after(pairs)


@given(st.floats(0.5, 2.0), st.floats(1e-4, 0.2), st.integers(1, 10), st.integers(1, 10))
def test_an_interval_lies_above_one_where_the_gain_is_proved_and_only_there(
    ratio: float, run_sd: float, pairs: int, rounds: int
):
    found = estimate(ratio, run_sd, pairs)
    assert (speedup_of(found, pairs, rounds).low > 1.0) == is_proved(found, pairs, rounds)


def test_a_clear_gain_has_the_plain_interval_at_its_first_look_and_a_wider_one_later():
    found = estimate(2.0, 0.01, 3)
    plain = found.interval(0.95)
    assert speedup_of(found, 3, rounds=3) == plain
    assert speedup_of(found, 3, rounds=2).low < plain.low
    assert speedup_of(found, 3, rounds=5).low < plain.low  # the time was over before the pairs that were asked for


def test_a_gain_that_only_the_plain_interval_shows_is_not_proved_yet():
    """Three pairs, 3.75 degrees of freedom: 2.9 standard errors would do alone, 4.6 or so among several looks."""
    error = estimate(1.0, 0.03, 3).leverage * 0.03
    found = estimate(math.exp(3.3 * error), 0.03, 3)
    assert found.interval(0.95).low > 1.0
    assert not is_proved(found, 3, rounds=3)
    assert speedup_of(found, 3, rounds=3).low < 1.0
    assert more_would_help(found, 3, rounds=3)


def test_more_pairs_are_run_while_they_can_decide_and_no_more_than_a_proof_may_add():
    close, hopeless = estimate(1.05, 0.02, 3), estimate(1.02, 0.03, 3)
    assert more_would_help(close, 3, rounds=3)
    assert 3 < pairs_needed(close, 3, rounds=3) <= MOST_PAIRS  # type: ignore[operator]
    assert not more_would_help(hopeless, 3, rounds=3)
    needed = pairs_needed(hopeless, 3, rounds=3)
    assert (
        needed == 19
    )  # 1.96 standard errors of 0.03 * sqrt(2 / n) are 0.0198 with 18 pairs; Student's t asks one more
    assert is_proved(hopeless.after(needed), needed, rounds=needed)
    assert not more_would_help(estimate(1.05, 0.06, MOST_PAIRS), MOST_PAIRS, rounds=3)


def test_two_pairs_know_the_noise_too_badly_to_give_up():
    assert more_would_help(estimate(1.03, 0.10, 2), 2, rounds=2)
    assert not more_would_help(estimate(1.03, 0.10, 3), 3, rounds=2)


@pytest.mark.parametrize("ratio", [0.9, 1.0, 1.009])
def test_nothing_more_is_run_for_a_gain_that_nobody_wants(ratio: float):
    assert not more_would_help(estimate(ratio, 0.05, 1), 1, rounds=1)
    assert pairs_needed(estimate(ratio, 0.05, 1), 1, rounds=1) is None


def test_who_asks_for_many_pairs_looks_once():
    found = estimate(1.05, 0.04, 12)
    assert speedup_of(found, 12, rounds=12) == found.interval(0.95)
    assert is_proved(found, 12, rounds=12)

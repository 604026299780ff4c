"""Windows in the order A B B A; and what pairs of them tell."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.practices.switching.pairs import LOOKS, estimate
from vivace.practices.switching.windows import Windows


def run(windows: Windows, pairs: int, step_s: dict[bool, float]) -> list[bool]:
    """Which arm each step ran with."""
    now, arms = 0.0, []
    while windows.pairs < pairs:
        arms.append(windows.arm_is_on)
        now += step_s[windows.arm_is_on]
        windows.step(now)
    return arms


def test_one_step_after_each_switch_is_not_timed():
    windows = Windows(step_s=1.0)
    arms = run(windows, 4, {False: 2.0, True: 1.0})
    # A a | B b b' | A a a' | B b b' | A: capitals are dropped, two windows in a row drop once.
    assert "".join("B" if on else "A" for on in arms) == "AABBBAAABBBAA"[: len(arms)]
    assert windows.seconds == {False: [2.0] * 4, True: [1.0] * 4}


@given(st.floats(1e-4, 10.0), st.floats(0.2, 5.0))
def test_the_ratio_of_steady_arms_is_exact(step_s: float, ratio: float):
    windows = Windows(step_s)
    run(windows, LOOKS[0], {False: step_s, True: step_s / ratio})
    found = estimate(windows.seconds[False], windows.seconds[True])
    assert found.low == pytest.approx(ratio, rel=1e-6)
    assert found.high == pytest.approx(ratio, rel=1e-6)


def test_drift_cancels():
    """Every step takes one per cent longer than the one before it."""
    windows, now, step = Windows(1.0), 0.0, 1.0
    while windows.pairs < 10 or not windows.whole:
        now += step
        step *= 1.01
        windows.step(now)
    found = estimate(windows.seconds[False], windows.seconds[True])
    assert found.ratio == pytest.approx(1.0, abs=0.01)


def test_short_steps_are_timed_together():
    assert Windows(0.001).timed == 20
    assert Windows(0.01).timed == 2
    assert Windows(3.0).timed == 1


@pytest.mark.parametrize("pairs", LOOKS)
def test_the_range_holds_the_median(pairs: int):
    """Of heavy-tailed noise around no difference, in at least 97 % of draws: it is asked for 98 %."""
    draw = random.Random(pairs)
    missed = 0
    for _ in range(1000):
        before = [draw.lognormvariate(0.0, 0.3) for _ in range(pairs)]
        after = [draw.lognormvariate(0.0, 0.3) for _ in range(pairs)]
        found = estimate(before, after)
        missed += not found.low <= 1.0 <= found.high
    assert missed <= 30

"""Losses while two runs go together, and over a long pair: what +1 % does, and what rounding does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.tune.harm.claims import Claims
from vivace.tune.harm.long_look import compare_long_runs
from vivace.tune.harm.paired_losses import compare_losses

STEPS = 40
FINE, BF16 = Claims(), Claims(number_format="bf16")


def losses(seed: int, steps: int = STEPS) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, 0.1, steps)
    return 2.0 * 0.97 ** np.arange(steps) + 0.3 + np.abs(noise)


def rounded(run: np.ndarray, size: float, growth: float, seed: int) -> np.ndarray:
    """Rounding grows from step to step, up or down by chance."""
    walk = np.cumsum(np.random.default_rng(seed).normal(0, size, len(run)) * growth ** np.arange(len(run)))
    return run * (1 + walk)


def judged(afters: list[np.ndarray], claims: Claims, band: float | None = 0.3) -> str:
    befores = [losses(seed).tolist() for seed in range(len(afters))]
    return compare_losses(befores, [a.tolist() for a in afters], band, claims, None).outcome


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), growth=st.floats(1.0, 1.6))
def test_rounding_that_grows_is_no_harm(seed: int, growth: float):
    assert judged([rounded(losses(0), 1e-7, growth, seed)], FINE) == "passed"


def test_sixteen_bits_that_part_are_no_harm():
    outcomes = [judged([rounded(losses(0), 3e-4, 1.1, seed)], BF16) for seed in range(200)]
    assert outcomes.count("failed") <= 4  # 2 %


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), factor=st.sampled_from([0.97, 0.99, 1.01, 1.03, 1.05]))
def test_a_percent_at_every_step_is_caught(seed: int, factor: float):
    assert judged([factor * rounded(losses(0), 1e-6, 1.2, seed)], FINE) == "failed"
    assert judged([factor * rounded(losses(0), 1e-4, 1.1, seed)], BF16) == "failed"


def test_the_band_of_other_seeds_alone_does_not_see_it():
    """What this test is for: +3 % lies well inside what another seed does."""
    spread = np.sqrt(np.mean(np.square(losses(0) - losses(1))))
    assert 0.03 * np.mean(losses(0)) < spread


def test_a_sudden_step_apart_is_caught():
    """One shifted label in a batch: nothing at first, then a jump that rounding never makes."""
    run = losses(0).copy()
    run[7] *= 1.01
    assert judged([run], FINE) == "failed"
    test = compare_losses([losses(0).tolist()], [run.tolist()], 0.3, FINE, None)
    assert "at step 8" in test.says


def test_a_step_that_loss_scaling_leaves_out_is_no_jump():
    run = losses(0).copy()
    run[7:] *= 1.2
    assert judged([run], BF16) == "failed"
    assert judged([run], Claims(number_format="fp16")) == "passed"


def test_weights_in_sixteen_bits_may_learn_a_little_slower():
    run = losses(0) * (1 + np.linspace(0, 0.02, STEPS))
    assert judged([run], BF16) == "failed"
    assert judged([run], Claims(number_format="bf16", rounds_weights=True)) == "passed"


def test_the_verdict_says_over_how_many_steps():
    test = compare_losses([losses(0).tolist()], [rounded(losses(0), 1e-7, 1.0, 3).tolist()], 0.3, FINE, None)
    assert (test.outcome, test.steps, test.pairs) == ("passed", STEPS, 1)


def test_a_job_that_does_not_repeat_itself_is_asked_less():
    shaky = (losses(0).tolist(), (losses(0) * 1.001).tolist())
    run = (losses(0) * 1.003).tolist()
    assert compare_losses([losses(0).tolist()], [run], 0.3, FINE, None).outcome == "failed"
    assert compare_losses([losses(0).tolist()], [run], 0.3, FINE, shaky).outcome == "passed"


@pytest.mark.parametrize(("drift", "outcome"), [(0.0, "passed"), (-0.05, "passed"), (0.05, "failed")])
def test_a_long_look_sees_losses_that_end_higher(drift: float, outcome: str):
    before = losses(0, 300)
    after = before + np.random.default_rng(1).normal(0, 0.02, 300) + drift * np.linspace(0, 1, 300)
    assert compare_long_runs(before.tolist(), after.tolist()).outcome == outcome


def test_a_long_look_rarely_alarms_for_chance():
    """Two runs that have parted: differences with a memory of ten steps."""
    alarms = 0
    for seed in range(200):
        steps = np.random.default_rng(seed).normal(0, 0.02, 300)
        wander = np.convolve(steps, 0.9 ** np.arange(40))[:300]
        before = losses(0, 300)
        alarms += compare_long_runs(before.tolist(), (before + wander).tolist()).outcome == "failed"
    assert alarms <= 4  # 2 %


def test_too_short_for_a_long_look():
    assert compare_long_runs([1.0] * 10, [1.0] * 10).outcome == "not run"

"""The first step of two runs, by hand: what rounding may change, what nothing may change, what cannot be compared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from practices.evidence import measurement
from tune.harm.made_steps import GRADIENT, noisy, run, step

from vivace.records.first_steps import FirstStep
from vivace.records.measurement import Measurement
from vivace.tune.harm.claims import FORMATS, Claims, claims_of
from vivace.tune.harm.first_step import compare_first_steps

ROUNDING = Claims()
BF16 = Claims(number_format="bf16")


def outcome(after: Measurement, claims: Claims = ROUNDING, before: Measurement | None = None) -> str:
    return compare_first_steps((before or run(step()), after), claims).outcome


@settings(deadline=None, max_examples=30)
@given(size=st.floats(0, 3e-4), seed=st.integers(0, 1000))
def test_rounding_passes(size: float, seed: int):
    assert outcome(run(step(noisy(size, seed)))) == "passed"


@settings(deadline=None, max_examples=30)
@given(factor=st.floats(1.005, 2), seed=st.integers(0, 1000))
def test_a_longer_gradient_does_not(factor: float, seed: int):
    """Loss ×1.01, as long as nothing rounds coarsely."""
    assert outcome(run(step(factor * noisy(1e-5, seed)))) == "failed"


def test_sixteen_bits_may_round_more_but_not_anything():
    assert outcome(run(step(noisy(0.12))), ROUNDING) == "failed"
    assert outcome(run(step(noisy(0.12))), BF16) == "passed"
    assert outcome(run(step(noisy(0.9))), BF16) == "failed"
    assert outcome(run(step(1.1 * noisy(0.05))), BF16) == "failed"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (run(step(settings=({"lr": 0.11},))), "the optimizer's lr is 0.11 instead of 0.1"),
        (run(step(update=-0.11 * GRADIENT)), "the update at the first step is +10 % longer"),
        (run(step(zero_gradient=1)), "1 parameters instead of 0 have a gradient of zero"),
        (run(step(unchanged=1, stand_still=("head.bias",))), "stand still at the first step: head.bias"),
        (run(step(trainable=1)), "1 parameters instead of 2 are trained"),
        (run(step(dtypes=("bfloat16",))), "weights are kept as bfloat16 instead of float32"),
        (run(step(), norms_evaluating=3), "batch norms run in another mode"),
        (run(step(), dropout=0.1), "dropout differs"),
        (run(step(), backwards=(1, 2, 1)), "step 2 has 2 backward passes instead of 1"),
        (run(step(), digest="b"), "the first batches are not the same"),
    ],
)
def test_what_no_rounding_explains_is_harm_beside_bf16_too(changed: Measurement, says: str):
    for claims in (ROUNDING, BF16):
        test = compare_first_steps((run(step()), changed), claims)
        assert test.outcome == "failed"
        assert says in test.says


def test_fewer_parameters_that_stand_still_are_no_harm():
    assert outcome(run(step(unchanged=0)), before=run(step(unchanged=2))) == "passed"


def test_other_batches_switch_the_test_off_only_for_those_who_may_draw_them():
    other = run(step(2 * GRADIENT), digest="b")
    test = compare_first_steps((run(step()), other), Claims(other_draws=("workers",)))
    assert test.outcome == "not run"
    assert "workers may draw other random numbers" in test.says
    unseeded = (run(step()), run(step(), digest="c"))
    test = compare_first_steps((run(step()), other), ROUNDING, unseeded)
    assert (test.outcome, "different batches in every run" in test.says) == ("not run", True)


def test_other_dropout_masks_are_no_harm_where_there_is_dropout():
    compiled = Claims(other_draws=("compile",))
    masked = step(noisy(0.4))
    assert outcome(run(masked, dropout=0.1), compiled, run(step(), dropout=0.1)) == "not run"
    assert outcome(run(masked), compiled) == "failed"
    assert outcome(run(step(settings=({"lr": 0.2},)), dropout=0.1), compiled, run(step(), dropout=0.1)) == "failed"


def test_an_exact_practice_must_repeat_gradients_that_repeat_themselves():
    exact, nearly = Claims(same_losses=True), run(step(noisy(1e-6)))
    again = (run(step()), run(step()))
    assert compare_first_steps((run(step()), nearly), exact, again).outcome == "failed"
    assert compare_first_steps((run(step()), run(step())), exact, again).outcome == "passed"
    shaky = (run(step()), run(step(noisy(2e-6, seed=5))))
    assert compare_first_steps((run(step()), nearly), exact, shaky).outcome == "passed"


def test_what_the_unchanged_job_differs_by_itself_is_allowed():
    shaky = (run(step()), run(step(noisy(0.01, seed=5))))
    assert compare_first_steps((run(step()), run(step(noisy(0.02)))), ROUNDING, shaky).outcome == "passed"


def test_a_part_near_zero_may_be_all_rounding():
    """A bias before a batch norm: its gradient is zero but for rounding."""
    small = GRADIENT * np.array([[1.0], [1e-7]])
    other = GRADIENT * np.array([[1.0], [-3e-7]])
    assert outcome(run(step(other)), before=run(step(small))) == "passed"
    large = GRADIENT * np.array([[1.0], [0.01]])
    assert outcome(run(step(large * np.array([[1.0], [1.05]]))), before=run(step(large))) == "failed"


def test_weights_in_sixteen_bits_may_lose_some_updates_not_all():
    pure = Claims(number_format="bf16", rounds_weights=True)
    some, none = step(update=-0.06 * GRADIENT, unchanged=1), step(update=-0.01 * noisy(3.0), unchanged=2)
    assert outcome(run(some), pure) == "passed"
    test = compare_first_steps((run(step()), run(none)), pure)
    assert test.outcome == "failed"
    assert "of the update at the first step is left" in test.says


def test_fp16_that_leaves_its_first_step_out_is_not_compared():
    overflow = step(norms=(float("inf"), 1.0))
    fp16 = Claims(number_format="fp16")
    assert outcome(run(overflow), fp16) == "not run"
    assert outcome(run(overflow), BF16) == "failed"


def test_a_later_step_that_loss_scaling_leaves_out_ends_the_comparison():
    def two(second: FirstStep) -> Measurement:
        first = run(step())
        assert first.first_steps is not None
        return first.model_copy(
            update={"first_steps": first.first_steps.model_copy(update={"steps": (step(), second)})}
        )

    pair = (two(step()), two(step(norms=(float("inf"), 1.0), unchanged=2)))
    assert compare_first_steps(pair, Claims(number_format="fp16")).outcome == "passed"
    assert compare_first_steps(pair, BF16).outcome == "failed"


def test_old_records_are_not_compared():
    assert outcome(measurement()) == "not run"


def test_claims_of_practices():
    assert claims_of(("pin_memory", "prefetch=4")).same_losses
    assert claims_of(("channels_last",)) == Claims()
    assert claims_of(("bf16", "channels_last")).number_format == "bf16"
    assert claims_of(("pure_bf16",)).rounds_weights
    assert claims_of(("compile",)).other_draws == ("compile",)
    assert claims_of(("compile",), same_draws=True).other_draws == ()
    assert claims_of(("workers=4",), same_draws=True).other_draws == ("workers",)
    assert list(FORMATS) == ["fp32", "tf32", "fp16", "bf16", "fp8"]

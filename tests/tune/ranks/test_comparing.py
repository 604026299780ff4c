"""One process beside ranks: rounding is equal, more is not, and the sentence says what differs and where."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tune.harm.made_steps import noisy, run, step

from vivace.records.measurement import Measurement
from vivace.tune.ranks.comparing import compare


def with_losses(record: Measurement, losses: list[float]) -> Measurement:
    return record.model_copy(update={"trajectory": tuple(losses)})


ALONE = with_losses(run(step()), [2.0, 1.5, 1.2, 1.0])


@settings(deadline=None, max_examples=30)
@given(size=st.floats(1e-8, 1e-5), seed=st.integers(0, 1000))
def test_rounding_is_equal_and_told_by_its_size(size: float, seed: int):
    split = with_losses(run(step(noisy(size, seed))), [2.0, 1.5 * (1 + size), 1.2, 1.0])
    compared = compare(ALONE, split, ("ddp",))
    assert compared.failed is None
    assert compared.not_compared is None
    assert compared.gradient is not None
    assert size / 20 < compared.gradient < 20 * size
    assert compared.losses == pytest.approx((0, size, 0, 0), abs=1e-12)
    assert "equal to one process at step 1 to" in compared.says()


def test_the_same_bits_are_said_to_be():
    assert compare(ALONE, ALONE, ("ddp",)).says() == (
        "equal to one process at step 1 to the bit (gradients); losses of 4 steps the same"
    )


def test_another_gradient_fails_with_its_place():
    split = with_losses(run(step(1.1 * noisy(0.0))), [2.0, 1.5, 1.2, 1.0])
    assert "gradients at the first step are +10 % longer" in str(compare(ALONE, split, ("ddp",)).failed)


def test_losses_that_jump_fail_where_gradients_agree():
    split = with_losses(run(step()), [2.0, 1.5, 1.2, 1.1])
    assert "differ by 10 % at step 4" in str(compare(ALONE, split, ("ddp",)).failed)


def test_a_script_that_does_not_repeat_itself_is_not_compared():
    other = with_losses(run(step(), digest="b"), [2.0, 1.5, 1.2, 1.0])
    doubtful = compare(ALONE, other, ("ddp",))
    assert "batches are not the same" in str(doubtful.failed)
    settled = compare(ALONE, other, ("ddp",), (ALONE, with_losses(run(step(), digest="c"), [2.0, 1.5, 1.2, 1.0])))
    assert settled.failed is None
    assert "different batches in every run" in str(settled.not_compared)

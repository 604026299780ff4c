"""Targets, goals and durations, as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.durations import Duration, DurationUnit
from vivace.errors import UserError
from vivace.race.targets import Direction, Goal, Target, Wanted


@pytest.mark.parametrize(
    ("text", "name", "value", "reached", "missed"),
    [
        ("accuracy >= 0.905", "accuracy", 0.905, 0.905, 0.9049),
        ("val_loss<=3.28", "val_loss", 3.28, 3.28, 3.2801),
        ("Validation Accuracy > 90%", "Validation Accuracy", 0.9, 0.901, 0.9),
        ('"* Acc@1" >= 75.9', "* Acc@1", 75.9, 76.0, 75.0),
        ("loss < 1e-3", "loss", 1e-3, 1e-4, 1e-3),
    ],
)
def test_a_target(text: str, name: str, value: float, reached: float, missed: float):
    target = Target.parse(text)
    assert (target.metric.text, target.value) == (name, pytest.approx(value))
    assert (target.reached(reached), target.reached(missed), target.reached(math.nan)) == (True, False, False)
    assert Target.parse(str(target)) == target


@pytest.mark.parametrize(
    "text", ["accuracy", "accuracy >=", ">= 0.9", "acc = 0.9", "acc >= high", "acc >= nan", "... >= 1"]
)
def test_what_is_not_a_target_is_told_with_an_example(text: str):
    with pytest.raises(UserError) as error:
        Target.parse(text)
    assert error.value.hint


def test_a_goal():
    assert Goal.parse("min val_loss") == Goal(Wanted("val_loss"), Direction.MIN)
    assert Goal.parse("Maximize Top-1") == Goal(Wanted("Top-1"), Direction.MAX)
    with pytest.raises(UserError, match="not a goal"):
        Goal.parse("val_loss")


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("20min", 1200, DurationUnit.SECONDS), ("90s", 90, DurationUnit.SECONDS), ("1.5h", 5400, DurationUnit.SECONDS),
        ("30ep", 30, DurationUnit.EPOCHS), ("5000steps", 5000, DurationUnit.STEPS), ("500ba", 500, DurationUnit.STEPS),
        ("1e9tok", 1e9, DurationUnit.TOKENS), ("60000 samples", 60000, DurationUnit.SAMPLES),
    ],
)  # fmt: skip
def test_a_duration(text: str, amount: float, unit: DurationUnit):
    assert Duration.parse(text) == Duration(amount, unit)


@pytest.mark.parametrize("text", ["20", "min", "-3ep", "0ep", "3 parsecs", "1e999s", ""])
def test_what_is_no_duration_names_the_option(text: str):
    with pytest.raises(UserError, match="--limit"):
        Duration.parse(text, "--limit")


@given(st.floats(1e-3, 1e12), st.sampled_from(DurationUnit))
def test_a_duration_is_written_as_it_is_read(amount: float, unit: DurationUnit):
    assert Duration.parse(str(Duration(amount, unit))) == Duration(amount, unit)

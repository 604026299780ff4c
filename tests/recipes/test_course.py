"""Durations to steps, with phases of other batches: every sample once an epoch, everything from the step alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.durations import Duration
from vivace.errors import UserError
from vivace.recipes.course import Course
from vivace.recipes.recipe import Phase


def phases(*rows: tuple[int, int]) -> tuple[Phase, ...]:
    return tuple(Phase.model_validate({"start": f"{start}ep", "batch": batch}) for start, batch in rows)


@given(st.integers(8, 60), st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_each_epoch_is_walked_through_once_in_order(samples: int, batches: list[int]):
    course = Course(samples, None, batches[0], 32, phases(*((2 * i, b) for i, b in enumerate(batches) if i)))
    last = course.steps_of(Duration.parse(f"{2 * len(batches) + 1}ep"))
    seen: dict[int, list[int]] = {}
    for step in range(last):
        place, batch = course.place(step), course.batch(step)
        assert batch == batches[min(place.epoch // 2, len(batches) - 1)]
        seen.setdefault(place.epoch, []).extend(range(place.first, place.first + batch))
    assert sorted(seen) == list(range(2 * len(batches) + 1))
    for epoch, found in seen.items():
        batch = batches[min(epoch // 2, len(batches) - 1)]
        assert found == list(range(samples // batch * batch))
    assert course.samples_before(last) == sum(len(found) for found in seen.values())
    assert course.epoch(last) == pytest.approx(2 * len(batches) + 1)


@pytest.mark.parametrize(
    ("text", "steps"), [("2ep", 20), ("2.5ep", 25), ("7ba", 7), ("95samples", 10), ("1000tok", 20), ("3.25ep", 31)]
)
def test_durations_as_steps(text: str, steps: int):
    course = Course(100, 5, 10, 32, phases((3, 20)))
    assert course.steps_of(Duration.parse(text)) == steps


def test_samples_across_phases():
    course = Course(100, None, 10, 32, phases((1, 20)))
    assert [course.samples_before(step) for step in (0, 10, 11)] == [0, 100, 120]
    assert course.steps_of(Duration.parse("121samples")) == 12


@pytest.mark.parametrize(
    ("every", "due"), [("1ep", [10, 15, 20]), ("4ba", [4, 8, 12, 16, 20]), ("100samples", [10, 15, 20])]
)
def test_what_is_due_when(every: str, due: list[int]):
    course = Course(100, None, 10, 32, phases((1, 20)))
    assert [step for step in range(1, 21) if course.is_due(Duration.parse(every), step)] == due


def test_a_batch_larger_than_an_epoch_is_refused():
    with pytest.raises(UserError, match="batch: 200 samples are more than the 100"):
        Course(100, None, 200, 32)

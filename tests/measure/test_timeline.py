"""Marks become steps, phases and validation; whatever the marks, no time is lost or counted twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.inside.steps.timeline import PHASES, Mark, Timeline, split

GRAD = {"root": 1, "samples": 4, "tokens": None, "grad": True}
NO_GRAD = {**GRAD, "grad": False}
END = {"ends_step": True, "skipped": False}


def timeline(*marks: tuple) -> Timeline:
    return split([Mark(*mark) for mark in marks])


def a_step(t: float) -> list[tuple]:
    """Ten milliseconds: loader 1, copy 1, forward 2, loss 1, backward 3, clipping 1, optimizer 1."""
    return [
        ("data+", t), ("data-", t + 1, 4), ("copy+", t + 1), ("copy-", t + 2), ("fwd+", t + 2), ("fwd-", t + 4, GRAD),
        ("bwd+", t + 5), ("bwd-", t + 8), ("opt+", t + 9), ("opt-", t + 10, END),
    ]  # fmt: skip


def test_every_phase_gets_its_time_and_the_loss_counts_as_forward():
    (step,) = timeline(("open", 0.0), *a_step(0.0)).steps
    assert step.phases_ms == {
        "loader": 1, "copy": 1, "forward": 3, "backward": 3, "communication": 0, "optimizer": 1, "other": 1,
    }  # fmt: skip
    assert step.fetched == [4]


def test_what_follows_a_forward_without_a_backward_is_not_the_loss():
    marks = [("open", 0.0), ("fwd+", 0.0), ("fwd-", 2.0, GRAD), ("opt+", 5.0), ("opt-", 6.0, END)]
    (step,) = timeline(*marks).steps
    assert step.phases_ms["forward"] == 2
    assert step.phases_ms["other"] == 3


def test_waiting_for_gradients_of_others_is_communication():
    marks = [("open", 0.0), ("bwd+", 1.0), ("bwd=", 4.0), ("bwd-", 9.0), ("opt+", 9.0), ("opt-", 10.0, END)]
    (step,) = timeline(*marks).steps
    assert (step.phases_ms["backward"], step.phases_ms["communication"]) == (3, 5)


def test_a_closure_inside_the_optimizer_keeps_forward_and_backward_apart():
    marks = [
        ("open", 0.0), ("opt+", 0.0), ("fwd+", 1.0), ("fwd-", 3.0, GRAD), ("bwd+", 4.0), ("bwd-", 7.0),
        ("opt-", 9.0, END),
    ]  # fmt: skip
    (step,) = timeline(*marks).steps
    assert step.phases_ms["forward"] == 3
    assert step.phases_ms["backward"] == 3
    assert step.phases_ms["optimizer"] == 3


def test_validation_in_eval_mode_is_left_out_of_the_step():
    marks = [
        ("open", 0.0), *a_step(0.0),
        ("eval", 10.0), ("data+", 10.0), ("data-", 12.0, 4), ("fwd+", 12.0), ("fwd-", 15.0, NO_GRAD),
        ("data+", 15.0), ("data-", 16.0, 4), ("fwd+", 16.0), ("fwd-", 19.0, NO_GRAD), ("data+", 19.0), ("data-", 20.0),
        ("train", 21.0), *a_step(21.0),
    ]  # fmt: skip
    result = timeline(*marks)
    assert [step.total_ms for step in result.steps] == [10, 10]
    assert (result.validation_ms, result.validation_batches, result.validation_runs) == (11, 2, 1)


def test_validation_without_eval_mode_is_known_by_its_missing_gradients():
    marks = [
        ("open", 0.0), *a_step(0.0), ("data+", 10.0), ("data-", 11.0, 4), ("fwd+", 11.0), ("fwd-", 14.0, NO_GRAD),
        *a_step(15.0),
    ]  # fmt: skip
    result = timeline(*marks)
    assert [step.total_ms for step in result.steps] == [10, 10]
    assert result.validation_ms == 5


def without_gradients(t: float) -> list[tuple]:
    """Three milliseconds: a batch of its own, and a forward without gradients."""
    return [("data+", t), ("data-", t + 1, 9), ("fwd+", t + 1), ("fwd-", t + 3, NO_GRAD)]


def test_labels_that_a_teacher_makes_for_every_step_are_part_of_it():
    marks = [mark for n in range(4) for mark in (*without_gradients(13 * n), *a_step(13 * n + 3))]
    result = timeline(("open", 0.0), *marks)
    assert [step.total_ms for step in result.steps] == [13.0] * 4
    assert (result.validation_ms, result.validation_runs) == (0, 0)


def test_batches_without_gradients_that_few_steps_have_are_validation():
    marks = [*a_step(0), *a_step(10), *without_gradients(20), *without_gradients(23), *a_step(26)]
    result = timeline(("open", 0.0), *marks)
    assert [step.total_ms for step in result.steps] == [10.0] * 3
    assert (result.validation_ms, result.validation_batches, result.validation_runs) == (6, 2, 1)


def test_validation_that_keeps_a_graph_is_still_validation():
    marks = [
        ("open", 0.0), *a_step(0.0),
        ("eval", 10.0), ("data+", 10.0), ("data-", 12.0, 4), ("fwd+", 12.0), ("fwd-", 15.0, GRAD),
        ("data+", 17.0), ("data-", 18.0, 4), ("fwd+", 18.0), ("fwd-", 20.0, NO_GRAD),
        ("train", 21.0), *a_step(21.0),
    ]  # fmt: skip
    result = timeline(*marks)
    assert [step.total_ms for step in result.steps] == [10, 10]
    assert (result.validation_ms, result.validation_batches, result.validation_with_grad_ms) == (11, 2, 7)


def test_training_in_eval_mode_is_training():
    marks = [("open", 0.0), ("eval", 0.0), *a_step(0.0), *a_step(10.0)]
    result = timeline(*marks)
    assert [step.total_ms for step in result.steps] == [10, 10]
    assert (result.validation_ms, result.validation_with_grad_ms) == (0, 0)


def test_a_frozen_teacher_inside_a_step_is_not_validation():
    marks = [
        ("open", 0.0), ("data+", 0.0), ("data-", 1.0, 4), ("fwd+", 1.0), ("fwd-", 4.0, NO_GRAD), ("fwd+", 4.0),
        ("fwd-", 6.0, GRAD), ("bwd+", 6.0), ("bwd-", 8.0), ("opt+", 8.0), ("opt-", 9.0, END),
    ]  # fmt: skip
    result = timeline(*marks)
    assert result.steps[0].total_ms == 9
    assert result.validation_ms == 0


CODES = [
    "data+",
    "data-",
    "copy+",
    "copy-",
    "fwd+",
    "fwd-",
    "bwd+",
    "bwd=",
    "bwd-",
    "comm+",
    "comm-",
    "opt+",
    "opt-",
    "eval",
    "train",
]
EXTRAS = {"fwd-": st.sampled_from([GRAD, NO_GRAD, None]), "opt-": st.sampled_from([END, None, {"ends_step": False}])}


@st.composite
def any_marks(draw: st.DrawFn) -> list[Mark]:
    """Also marks that no training would leave: a crash can cut them anywhere."""
    t, marks = 0.0, [Mark("open", 0.0)]
    for code in draw(st.lists(st.sampled_from(CODES), max_size=60)):
        t += draw(st.floats(0, 100))
        marks.append(Mark(code, t, draw(EXTRAS[code]) if code in EXTRAS else None))
    return marks


@given(any_marks())
def test_parts_add_up_to_the_whole_time(marks: list[Mark]):
    result = split(marks)
    total = sum(step.total_ms for step in result.steps) + result.validation_ms + result.unfinished.total_ms
    assert total == pytest.approx(marks[-1].t_ms - marks[0].t_ms)


@given(any_marks())
def test_no_part_is_negative(marks: list[Mark]):
    result = split(marks)
    for step in [*result.steps, result.unfinished]:
        assert set(step.phases_ms) == set(PHASES)
        assert min(step.phases_ms.values()) >= 0


def test_waiting_for_a_batch_that_was_fetched_ahead_is_loader_wait_and_no_batch_of_its_own():
    """gpu_prefetch: the next batch is fetched (10 ms), this one is waited for (5 ms); then forward, backward, step."""
    marks = [
        ("open", 0.0), ("data+", 0.0), ("data-", 10.0, 4), ("wait+", 11.0), ("wait-", 16.0), ("fwd+", 16.0),
        ("fwd-", 20.0, GRAD), ("bwd+", 20.0), ("bwd-", 28.0), ("opt+", 28.0), ("opt-", 30.0, END),
    ]  # fmt: skip
    (step,) = timeline(*marks).steps
    assert step.phases_ms["loader"] == 15.0
    assert step.phases_ms["forward"] == 4.0
    assert step.phases_ms["other"] == 1.0
    assert step.total_ms == 30.0
    assert step.fetched == [4]


def test_the_loss_of_a_step_with_a_closure_is_that_of_its_first_call():
    """Two losses a call, three calls; then a step whose backward passes come before the optimizer."""

    def call(t: float, first: float) -> list[tuple]:
        losses = [("bwd+", t, first), ("bwd-", t, None), ("bwd+", t, first + 0.5), ("bwd-", t, None)]
        return [("closure", t), *losses]

    calls = [*call(1.0, 3.0), *call(2.0, 2.0), *call(3.0, 1.0)]
    accumulated = [
        ("bwd+", 5.0, 0.7),
        ("bwd-", 5.0),
        ("bwd+", 6.0, 0.6),
        ("bwd-", 6.0),
        ("opt+", 7.0),
        ("opt-", 7.0, END),
    ]
    first, second = timeline(("open", 0.0), ("opt+", 0.5), *calls, ("opt-", 4.0, END), *accumulated).steps
    assert (first.losses, len(first.backwards)) == ([3.0, 3.5], 6)
    assert second.losses == second.backwards == [0.7, 0.6]

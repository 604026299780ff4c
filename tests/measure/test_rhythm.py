"""What a step is, from the order in which parameters change after backward passes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.inside.steps.rhythm import Gap, Rhythm, find_rhythm

NOTHING = Gap(frozenset())
D, G = Gap(frozenset({0, 1, 2})), Gap(frozenset({3, 4}))


@given(st.integers(1, 20), st.integers(0, 5))
def test_accumulation_is_found_also_after_a_few_odd_passes(micro_batches: int, odd: int):
    step = [NOTHING] * (micro_batches - 1) + [D]
    gaps = [NOTHING] * odd + step * 9
    rhythm = find_rhythm(gaps)
    assert rhythm is not None
    assert rhythm.period == micro_batches
    ends = [number for number in range(len(gaps)) if rhythm.ends_step(number) and number >= odd]
    assert ends == [number for number, gap in enumerate(gaps) if gap.changed]


@pytest.mark.parametrize("critic", [1, 2, 5, 7])
def test_the_second_network_of_a_gan_ends_a_step(critic: int):
    rhythm = find_rhythm(([D] * critic + [G]) * 4)
    assert rhythm == Rhythm(critic + 1, critic, frozenset(range(critic + 1)))


def test_two_passes_over_one_batch_are_one_step():
    """SAM: parameters change after both passes, but only one batch is fetched."""
    again, fetched = Gap(D.changed, fetched=False), Gap(D.changed, fetched=True)
    assert find_rhythm([again, fetched] * 4) == Rhythm(2, 1, frozenset({0, 1}))


def test_not_every_parameter_must_change_in_every_step():
    usual, some = Gap(frozenset(range(8))), Gap(frozenset(range(5)))
    rhythm = find_rhythm([usual, some, usual, usual, some, usual, some, usual])
    assert rhythm is not None
    assert rhythm.period == 1


@given(st.integers(2, 12))
def test_ever_longer_steps_have_no_rhythm(longest: int):
    gaps = [gap for length in range(1, longest + 1) for gap in [NOTHING] * length + [D]]
    assert find_rhythm(gaps) is None


@given(st.lists(st.sampled_from([NOTHING, D, G]), max_size=7))
def test_seven_passes_are_too_few(gaps: list[Gap]):
    assert find_rhythm(gaps) is None


@given(st.lists(st.sampled_from([NOTHING, D, G]), max_size=40))
def test_a_rhythm_is_one_that_the_last_gaps_have(gaps: list[Gap]):
    rhythm = find_rhythm(gaps)
    if rhythm is None:
        return
    last = range(len(gaps) - 3 * rhythm.period, len(gaps))
    assert [rhythm.updates(number) for number in last] == [bool(gaps[number].changed) for number in last]
    assert all(gaps[number].changed for number in last if rhythm.ends_step(number))

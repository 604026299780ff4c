"""Laws of the schedules, for any number of ranks and micro-batches."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from vivace.parallel.underhood import pipeline
from vivace.parallel.underhood.pipeline import Job, Pass, bubble, gpipe, naive, one_f_one_b, times

RANKS, MICRO_BATCHES = st.integers(1, 6), st.integers(1, 12)
SCHEDULES = st.sampled_from([naive, gpipe, one_f_one_b])


@given(schedule=SCHEDULES, ranks=RANKS, micro_batches=MICRO_BATCHES)
def test_every_rank_does_every_pass_once_and_forward_first(
    schedule: pipeline.Schedule, ranks: int, micro_batches: int
) -> None:
    for begins in times(schedule, ranks, micro_batches):
        assert len(begins) == 2 * micro_batches
        assert all(begins[Job(Pass.FORWARD, each)] < begins[Job(Pass.BACKWARD, each)] for each in range(micro_batches))


@given(ranks=RANKS, micro_batches=MICRO_BATCHES, backward=st.integers(1, 3))
def test_the_bubble_is_p_minus_one_over_m_plus_p_minus_one(ranks: int, micro_batches: int, backward: int) -> None:
    expected = (ranks - 1) / (micro_batches + ranks - 1)
    assert abs(bubble(gpipe, ranks, micro_batches, backward) - expected) < 1e-12
    assert abs(bubble(one_f_one_b, ranks, micro_batches, backward) - expected) < 1e-12
    assert abs(bubble(naive, ranks, micro_batches, backward) - (1 - 1 / ranks)) < 1e-12


@given(ranks=RANKS, micro_batches=MICRO_BATCHES)
def test_one_f_one_b_keeps_at_most_as_many_micro_batches_as_ranks_follow(ranks: int, micro_batches: int) -> None:
    for rank in range(ranks):
        kept = most = 0
        for job in one_f_one_b(rank, ranks, micro_batches):
            kept += 1 if job.kind is Pass.FORWARD else -1
            most = max(most, kept)
        assert most == min(ranks - rank, micro_batches)


def test_the_picture_in_the_text() -> None:
    assert doctest.testmod(pipeline).failed == 0

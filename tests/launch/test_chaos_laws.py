"""The laws of ``launch.chaos`` without Slurm: each one can be broken, and is then named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from launch.chaos import waiting
from launch.chaos.faults import FAULTS
from launch.chaos.laws import Law, Outcome, Seen, broken_by_end, broken_by_fault, starts_before, steps_lost
from launch.chaos.strike import Expect
from launch.chaos.training import STEPS, Life, lives_in

# Hit in its first life, at step 15, five steps after a save; it saved there and went on.
HELD = Seen(
    expect=Expect.SAVES,
    outcome=Outcome.RESTARTED,
    state="RUNNING",
    alone=True,
    saved_step=10,
    lives_before=1,
    lives=(Life(0, 15), Life(16, 20)),
    finished_before=False,
    all_ranks_done=False,
)


@pytest.mark.parametrize(
    ("change", "law"),
    [
        ({}, None),
        ({"lives": (Life(0, 15), Life(14, 20))}, Law.LOST_DESPITE_WARNING),
        ({"lives": (Life(0, 15), Life(14, 20)), "alone": False}, None),
        ({"lives": (Life(0, 15), Life(10, 20)), "expect": Expect.CRASHES}, None),
        ({"lives": (Life(0, 15), Life(9, 20)), "expect": Expect.CRASHES}, Law.LOST),
        ({"lives": (Life(0, 25), Life(12, 20)), "expect": Expect.CRASHES}, Law.LOST),
        ({"outcome": Outcome.ENDED, "state": "FAILED"}, Law.ENDED_BY_WARNING),
        ({"expect": Expect.UNTOUCHED}, Law.NOT_UNTOUCHED),
        ({"expect": Expect.UNTOUCHED, "lives": (Life(0, 20),), "outcome": Outcome.WENT_ON}, None),
        ({"expect": Expect.REQUEUED, "outcome": Outcome.ENDED, "all_ranks_done": True}, Law.FALSE_FAILED),
        ({"expect": Expect.CRASHES, "outcome": Outcome.ENDED, "all_ranks_done": True}, None),
        ({"outcome": Outcome.ENDED, "finished_before": True, "all_ranks_done": True}, Law.FALSE_FAILED),
        (
            {"expect": Expect.TERMINATES, "outcome": Outcome.ENDED, "finished_before": True, "all_ranks_done": True},
            None,
        ),
    ],
)
def test_a_fault_breaks_this_law_or_none(change: dict[str, object], law: Law | None):
    assert broken_by_fault(replace(HELD, **change)) == ([] if law is None else [law])  # type: ignore[arg-type]


def test_the_first_start_of_a_job_that_was_held_up_while_it_imported_is_not_a_second_one():
    assert starts_before(Expect.UNTOUCHED, []) == starts_before(Expect.UNTOUCHED, [Life(0, 5)]) == 1
    assert starts_before(Expect.SAVES, []) == 0


def test_what_reads_completed_has_its_last_step_and_the_same_weights():
    assert broken_by_end("COMPLETED", STEPS, same_weights=True, same_losses=True) == []
    assert broken_by_end("COMPLETED", STEPS - 1, same_weights=True, same_losses=True) == [Law.FALSE_COMPLETED]
    assert broken_by_end("COMPLETED", STEPS, same_weights=False, same_losses=False) == [Law.WEIGHTS, Law.LOSSES]


def test_lives_and_losses_are_read_from_the_log():
    text = "rank 0 of 2 on n begins at step 0\nstep 0 rank 0 loss 1step 0 rank 1 loss 1\nstep 1 rank 0 loss 1\n"
    lives = lives_in(f"{text}rank 1 of 2 on n begins at step 1\nrank 0 of 2 on n begins at step 1\n")
    assert lives == [Life(0, 1), Life(1, 0)]
    assert steps_lost(lives) == [1]


def test_a_busy_machine_gets_more_patience(monkeypatch: pytest.MonkeyPatch):
    clock = iter(range(10**6))
    looks = []
    monkeypatch.setattr(waiting.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(waiting.time, "sleep", lambda _seconds: None)
    for load, expected in ((1.0, 10), (5.0, 50)):
        looks.clear()
        monkeypatch.setattr(waiting, "busyness", lambda load=load: load)
        with pytest.raises(waiting.GaveUp):
            waiting.wait("never", lambda: looks.append(1), patience_s=10)
        assert len(looks) == pytest.approx(expected, abs=1)


def test_every_fault_has_a_name_of_its_own():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)

"""What must hold for a training however it was disturbed. Pure decisions on what was seen; no Slurm here."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from launch.chaos.strike import Expect
from launch.chaos.training import SAVE_STEPS, STEPS, Life

__all__ = ["Law", "Outcome", "Seen", "broken_by_end", "broken_by_fault", "starts_before", "steps_lost"]


class Law(Enum):
    LOST = "steps before the last periodic save were lost"
    LOST_DESPITE_WARNING = "a heard warning lost steps"
    ENDED_BY_WARNING = "a warning ended the job"
    NOT_UNTOUCHED = "the job was started again although nothing was wrong"
    FALSE_COMPLETED = "reads COMPLETED and is not"
    FALSE_FAILED = "finished, and does not read COMPLETED"
    WEIGHTS = "other weights than without the fault"
    LOSSES = "other losses than without the fault"
    STATUS = "vivace status or queue is not true"


class Outcome(Enum):
    WENT_ON = "went on"
    RESTARTED = "started again"
    ENDED = "ended, sent again"
    FINISHED = "finished"


@dataclass(frozen=True)
class Seen:
    """One fault: the training before it, and what became of it."""

    expect: Expect
    outcome: Outcome
    state: str
    """Slurm's, at its end; of a job that is not over, the one when this was written."""
    alone: bool
    """Nothing else happened to the cluster at that time."""
    saved_step: int
    """The step of the checkpoint when the fault came."""
    lives_before: int
    lives: Sequence[Life]
    finished_before: bool
    all_ranks_done: bool
    """All ranks say that they are done, in the life that the fault came into."""


def starts_before(expect: Expect, lives: Sequence[Life]) -> int:
    """Starts that are not the fault's doing. A job that still imports when it is only held up has not begun its first
    one, which is then none too many."""
    return max(len(lives), 1) if expect is Expect.UNTOUCHED else len(lives)


def steps_lost(lives: Sequence[Life]) -> list[int]:
    """Trained and trained again, at each start but the first."""
    return [before.last + 1 - after.first for before, after in itertools.pairwise(lives)]


def broken_by_fault(seen: Seen) -> list[Law]:
    laws: list[Law] = []
    after = seen.lives[seen.lives_before :]
    lost = steps_lost(seen.lives)[max(0, seen.lives_before - 1) :]
    if any(life.first < seen.saved_step for life in after) or any(steps > SAVE_STEPS for steps in lost):
        laws.append(Law.LOST)
    if seen.alone and not seen.finished_before:
        if seen.expect in (Expect.SAVES, Expect.TERMINATES):
            if seen.outcome is Outcome.ENDED:
                laws.append(Law.ENDED_BY_WARNING)
            if any(steps > 0 for steps in lost):
                laws.append(Law.LOST_DESPITE_WARNING)
        if seen.expect is Expect.UNTOUCHED and (after or seen.outcome is Outcome.ENDED):
            laws.append(Law.NOT_UNTOUCHED)
    harmless = seen.expect in (Expect.SAVES, Expect.UNTOUCHED, Expect.REQUEUED)
    harmless = harmless or (seen.expect is Expect.TERMINATES and not seen.finished_before)
    if seen.outcome is Outcome.ENDED and seen.all_ranks_done and harmless:
        laws.append(Law.FALSE_FAILED)
    return laws


def broken_by_end(state: str, saved_step: int, same_weights: bool, same_losses: bool) -> list[Law]:
    """Of a training that Slurm calls COMPLETED, after its last fault."""
    laws: list[Law] = []
    if state == "COMPLETED" and saved_step != STEPS:
        return [Law.FALSE_COMPLETED]
    if not same_weights:
        laws.append(Law.WEIGHTS)
    if not same_losses:
        laws.append(Law.LOSSES)
    return laws

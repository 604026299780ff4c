"""What a reader of the proof should know: doubts about single practices, time that was short, an unsteady machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vivace.records.proof import Gain
from vivace.tune.ablation import compiles
from vivace.tune.comparison import speed
from vivace.tune.looks import SMALLEST_GAIN
from vivace.tune.pairs import reruns_of
from vivace.tune.proof.case import Case

__all__ = ["add_remarks"]

_UNSTEADY = 1.3
_COMPILE_S = 120.0  # to compile a model with cold caches, roughly; a model of minutes will need another look


def add_remarks(case: Case) -> None:
    case.notes += _doubts(case.gains)
    case.notes += _short_of_time(case)
    if unsteady := _unsteady(case):
        case.notes.append(unsteady)
    if case.found.untried:
        case.notes.append(_how_to_go_on(case))


def _doubts(gains: Sequence[Gain]) -> list[str]:
    """About single practices of a set that is proved as a whole."""
    last = {gain.practice: gain.last for gain in gains if gain.last is not None}
    slowing = [word for word, interval in last.items() if interval.high < 1]
    idle = [word for word, interval in last.items() if interval.high >= 1 and interval.median < 1 + SMALLEST_GAIN]
    notes = []
    if slowing:
        notes.append(
            f"it may be even faster without {', '.join(slowing)}: one run each suggests it, which proves nothing"
        )
    if idle:
        notes.append(f"not shown to help on top of the others: {', '.join(idle)}")
    return notes


def _short_of_time(case: Case) -> Iterator[str]:
    unproven = case.found.unproven
    not_alone = [g.practice for g in case.gains if g.practice in unproven and g.last is None and g.alone is None]
    if not_alone:
        yield f"not enough time to test these alone, they are part of the total gain: {', '.join(not_alone)}"
    if 0 < len(case.verdict.pairs) < case.rounds and case.verdict.ended is None:
        yield f"the time budget ended the proof after {len(case.verdict.pairs)} of {case.rounds} rounds"


def _unsteady(case: Case) -> str:
    """The unchanged job should take as long every time; where it does not, something else has the machine."""
    runs, _tuned = reruns_of(case.found, case.verdict.pairs)
    speeds = sorted(speed(m) for m in runs)
    if speeds[-1] < _UNSTEADY * speeds[0]:
        return ""
    unit = "steps" if runs[0].samples_per_s is None else "samples"
    return (
        f"the unchanged job itself ran at between {speeds[0]:.4g} and {speeds[-1]:.4g} {unit}/s: something else takes "
        "this machine's time, and no figure here is surer than that"
    )


def _how_to_go_on(case: Case) -> str:
    """What was not tried, and the budget that would hold it: what was run is not run again."""
    found = case.found
    trial_s = max(found.again.seconds, found.best.seconds)
    to_compile = sum(compiles(word) for word in found.untried)
    needed_s = (len(found.untried) + 2 * case.rounds) * trial_s + to_compile * max(_COMPILE_S, trial_s)
    return f"not tried, not enough time: {', '.join(found.untried)}; continue with: {case.resume_with(needed_s)}"

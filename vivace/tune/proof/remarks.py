"""What a reader of the proof should know: doubts about single practices, time that was short, an unsteady machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vivace.records.proof import Gain, Rejection
from vivace.tune.ablation import compiles
from vivace.tune.looks import SMALLEST_GAIN
from vivace.tune.pairs import varied
from vivace.tune.proof.case import Case

__all__ = ["add_remarks"]

_COMPILE_S = 120.0  # to compile a model with cold caches, roughly; a model of minutes will need another look


def add_remarks(case: Case) -> None:
    case.notes += _doubts(case.gains)
    case.notes += _short_of_time(case)
    case.notes += [note for note in (_unsteady(case), _unjudged(case)) if note]
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
    seen = varied(case.found, case.verdict.pairs)
    if not seen.is_unsteady or not case.verdict.words:  # where nothing is recommended, the first line says it
        return ""
    return (
        f"the unchanged job itself ran at between {seen.low:.4g} and {seen.high:.4g} {seen.unit}/s: something else "
        "takes this machine's time, and no figure here is surer than that"
    )


def _unjudged(case: Case) -> str:
    words = [word for word, rejected in case.found.rejected.items() if rejected.reason is Rejection.UNJUDGED]
    if not words or not case.verdict.words:
        return ""
    return f"could not be judged, because runs of the same job differ too much: {', '.join(words)}"


def _how_to_go_on(case: Case) -> str:
    """What was not tried, and the budget that would hold it: what was run is not run again."""
    found = case.found
    trial_s = max(found.again.seconds, found.best.seconds)
    to_compile = sum(compiles(word) for word in found.untried)
    needed_s = (len(found.untried) + 2 * case.rounds) * trial_s + to_compile * max(_COMPILE_S, trial_s)
    return f"not tried, not enough time: {', '.join(found.untried)}; continue with: {case.resume_with(needed_s)}"

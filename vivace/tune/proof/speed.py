"""Steps that look at the speed: what brings nothing, what the pairs prove, what slows the rest down."""

from __future__ import annotations

from collections.abc import Sequence

from vivace.records.base import last_line
from vivace.records.proof import Rejection
from vivace.records.trial import Outcome, Trial
from vivace.tune.ablation import ablation, leave_one_out, limit_s
from vivace.tune.comparison import by_single_runs, ratio_of
from vivace.tune.looks import MOST_PAIRS
from vivace.tune.pairs import Verdict, in_words, reruns_of
from vivace.tune.proof.case import Case, is_harmed
from vivace.tune.references import measured

__all__ = [
    "drop_what_ended", "drop_what_is_not_proved", "judge_what_is_doubtful", "leave_out_dead_weight",
    "leave_out_what_slows", "look_at_each_alone", "run_the_pairs", "run_without_each",
]  # fmt: skip


def run_without_each(case: Case) -> None:
    """The set without each of its practices, one run each, as far as there is time beside the pairs."""
    case.lasts = leave_one_out(case.bench, case.found, case.found.words, keep_s=case.first_pairs_s)


def leave_out_dead_weight(case: Case) -> None:
    """A practice that paid when it was added may not any more, with what came after it. Of several, each may stand in
    for another: they go together only where a run without all of them is as fast."""
    if case.found.references.is_unsteady:  # a single run without it says nothing; the pairs will judge the set
        return
    best = measured(case.found.best)
    ratios = {word: ratio_of(measured(trial), best) for word, trial in case.lasts.items()}
    idle = sorted((word for word, ratio in ratios.items() if ratio <= 1.0), key=ratios.__getitem__)
    if len(idle) > 1 and not _as_fast_without(case, idle):
        idle = idle[:1]
    for word in idle:
        case.reject(word, Rejection.NO_GAIN, "it brings nothing on top of the others", ratios[word])
        case.bench.say(f"  [dim]–[/] {word:32} [dim]{ratios[word]:.2f}× on top of the others: left out[/]")
    case.words = tuple(word for word in case.found.words if word not in idle)


def _as_fast_without(case: Case, idle: Sequence[str]) -> bool:
    bench, found = case.bench, case.found
    left = tuple(word for word in found.words if word not in idle)
    if not left or not bench.has_time_for(case.first_pairs_s + max(found.again.seconds, found.best.seconds)):
        return False
    trial = bench.run("without-several", left, limit_s=limit_s(found))
    return trial.outcome is Outcome.OK and ratio_of(measured(found.best), measured(trial)) > 1 - found.noise


def run_the_pairs(case: Case) -> None:
    case.verdict = case.run_pairs(case.words, "round")


def drop_what_ended(case: Case) -> None:
    """A tuned job that ended once in its own proof would end a training."""
    verdict = case.verdict
    ended = verdict.ended
    if ended is None:
        return
    who = "the tuned job" if ended.practices else "the unchanged job itself"
    how = f"{who} ended in its paired run {ended.name} ({ended.outcome}: {last_line(ended.message)})"
    if verdict.pairs and not ended.practices:
        case.notes.append(f"{how}: the proof uses the earlier runs")
        return
    case.notes.append(f"{how}: nothing is recommended")
    case.drop(verdict, Rejection.NOT_PROVED, how)


def drop_what_is_not_proved(case: Case) -> None:
    if case.verdict.words and case.verdict.speedup.low <= 1.0:
        case.notes.append(_not_proved(case, case.verdict))
        case.drop(case.verdict, Rejection.NOT_PROVED, "the gain in the paired runs is within the noise")


def _not_proved(case: Case, verdict: Verdict) -> str:
    """And what it would take."""
    run = len(verdict.pairs)
    said = f"the gain is within the noise after {in_words(run)} of runs: nothing is recommended"
    if verdict.needed is None:
        return said
    seems = f"if it is {verdict.speedup.median:.2f}×, about {verdict.needed} pairs would prove it"
    if verdict.needed <= max(MOST_PAIRS, case.rounds):
        return f"{said}; {seems}; continue with: {case.resume_with((verdict.needed - run) * case.found.pair_s)}"
    return f"{said}; {seems}: ask for them with --rounds {verdict.needed}"


def leave_out_what_slows(case: Case) -> None:
    """One run may mislead; against all paired runs, a set that is surely faster without a practice loses it."""
    bench, found, verdict = case.bench, case.found, case.verdict
    case.of_this_set = _without_each_of_the_proved(case)
    afters, reruns = [after for _, after in verdict.pairs], reruns_of(found, verdict.pairs)
    against = {w: by_single_runs([measured(t)], afters, reruns).interval() for w, t in case.of_this_set.items()}
    slowing = [word for word, last in against.items() if last.high < 1]
    left = tuple(word for word in verdict.words if word not in slowing)
    if not slowing or not left or not bench.has_time_for(found.pair_s):
        return
    second = case.run_pairs(left, "without-slow")
    if not _is_better(second, verdict):
        return
    for word in slowing:
        case.reject(word, Rejection.NO_GAIN, "the paired runs are faster without it", against[word].median)
    case.verdict, case.of_this_set = second, {}


def judge_what_is_doubtful(case: Case) -> None:
    """The time that the proof left goes to words that one run could not judge; what pays joins if the pairs say so."""
    found, proved = case.found, case.verdict
    if not proved.words or proved.words != found.words or len(proved.pairs) < case.rounds:
        return
    found.is_proved = True
    found.judge_what_is_doubtful()
    joined = [word for word in found.words if word not in proved.words]
    if not joined:
        return
    second = case.run_pairs(found.words, "with-more") if case.bench.has_time_for(found.pair_s) else None
    if second is not None and _is_better(second, proved):
        case.verdict, case.of_this_set = second, {}
        return
    for word in joined:
        case.reject(
            word, Rejection.NOT_PROVED, "it seemed to pay in several runs, and the pairs with it do not prove it"
        )


def _is_better(second: Verdict, first: Verdict) -> bool:
    """A set that was proved after another one, to take its place."""
    if second.ended is not None or second.harm is None or is_harmed(second):
        return False
    return second.speedup.median > first.speedup.median and second.speedup.low > 1.0


def _without_each_of_the_proved(case: Case) -> dict[str, Trial]:
    """Also of practices that were tried together with others only."""
    words, found = case.verdict.words, case.found
    known = dict(case.lasts) if words == found.words else {}
    looked_at = {*case.lasts, *(word for word in words if word not in found.unproven)}
    return known | leave_one_out(case.bench, found, words, keep_s=found.pair_s, known=looked_at)


def look_at_each_alone(case: Case) -> None:
    """What each practice of the proved set brings, as the last one added and alone."""
    case.gains = ablation(case.bench, case.found, case.verdict, case.of_this_set, case.notes)

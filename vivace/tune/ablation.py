"""What does each practice of a set bring? Runs of the set without it, and of it alone, as far as the time goes."""

from __future__ import annotations

from collections.abc import Collection

from vivace.practices.engine.registry import get_practice, split_word
from vivace.records.proof import Gain, Interval
from vivace.records.trial import Outcome, Trial
from vivace.tune.attempts import Search, refusal
from vivace.tune.bench import Bench
from vivace.tune.candidates import risk_of, without
from vivace.tune.comparison import by_single_runs
from vivace.tune.pairs import Verdict, reruns_of
from vivace.tune.references import measured

__all__ = ["ablation", "compiles", "leave_one_out", "limit_s"]


def leave_one_out(
    bench: Bench, found: Search, words: tuple[str, ...], keep_s: float, known: Collection[str] = ()
) -> dict[str, Trial]:
    """The set without each of its practices, as far as the time goes that the paired runs leave.

    First those that nobody has looked at alone, and of them those without which nothing is compiled anew.
    """
    trials: dict[str, Trial] = {}
    if len(words) == 1:
        return trials
    compiled = any(compiles(word) for word in words)
    for word in sorted(words, key=lambda w: (w not in found.unproven, compiled and _changes_what_is_compiled(w))):
        needed_s = found.again.seconds
        if compiled and _changes_what_is_compiled(word):
            needed_s = max(trial.seconds for trial in bench.trials)
        if word in known or not bench.has_time_for(keep_s + needed_s):
            continue
        limit = min(limit_s(found), bench.left_s - keep_s)
        trial = bench.run(f"without-{word}", without(words, word), limit_s=limit)
        if trial.outcome is Outcome.OK:
            trials[word] = trial
    return trials


def compiles(word: str) -> bool:
    return get_practice(split_word(word)[0]).try_last


def _changes_what_is_compiled(word: str) -> bool:
    return get_practice(split_word(word)[0]).family in ("precision", "kernels") and not compiles(word)


def ablation(
    bench: Bench,
    found: Search,
    verdict: Verdict,
    known: dict[str, Trial],
    notes: list[str],
) -> tuple[Gain, ...]:
    """What each practice brings as the last one added, and alone; as far as the budget goes.

    ``known``: trials of the proved set without one practice that were run already.
    """
    last: dict[str, Interval] = {}
    alone: dict[str, Interval] = {}
    if len(verdict.words) == 1:
        last = alone = {verdict.words[0]: verdict.speedup}
    else:
        reruns = reruns_of(found, verdict.pairs)
        befores, afters = ([pair[side] for pair in verdict.pairs] for side in (0, 1))
        for word, trial in (known | leave_one_out(bench, found, verdict.words, keep_s=0.0, known=known)).items():
            last[word] = by_single_runs([measured(trial)], afters, reruns).interval()
        for word in verdict.words:
            if trial_alone := _alone(bench, found, word):
                alone[word] = by_single_runs(befores, [measured(trial_alone)], reruns).interval()
        if len(last) + len(alone) < 2 * len(verdict.words) and not bench.has_time_for(found.again.seconds):
            notes.append("the time budget ended the ablation: some figures are missing")
    return tuple(
        Gain(
            practice=word,
            risk=risk_of(word),
            title=get_practice(split_word(word)[0]).title,
            alone=alone.get(word),
            last=last.get(word),
            by_hand=_by_hand(found, word),
        )
        for word in verdict.words
    )


def _alone(bench: Bench, found: Search, word: str) -> Trial | None:
    """None: no time, it does not run alone, or it applies only beside others (prefetch needs workers)."""
    if not bench.has_time_for(found.again.seconds):
        return None
    limit = min(limit_s(found), max(bench.left_s, found.again.seconds))
    trial = bench.run(f"alone-{word}", (word,), limit_s=limit)
    return trial if trial.outcome is Outcome.OK and refusal(trial, word) is None else None


def limit_s(found: Search) -> float:
    return 15 + 3 * max(found.again.seconds, found.best.seconds)


def _by_hand(found: Search, word: str) -> str:
    """For the argument that was kept, which may not be the one that was found first."""
    name, argument = split_word(word)
    practice = get_practice(name)
    if argument is not None and practice.lines is not None:
        return practice.lines(argument)
    return next((f.by_hand for f in found.findings if f.practice == name), practice.by_hand)

"""Which set of practices is fastest? What was found is tried all at once, then one more at a time, as long as it pays.

A trial is expensive, and most of what was found pays: so the first trial has all of it, and only where that fails are
they tried one by one, the most valuable first. (The proof then looks at the set without each of its practices.) What
compiles comes last. Whenever the step has become much shorter something else holds it back, often the loader: the
evidence is then taken again, and what it shows is tried.
"""

from __future__ import annotations

import math
from dataclasses import replace

from rich.markup import escape

from vivace.errors import UserError
from vivace.practices.engine.registry import get_practice, split_word
from vivace.records.base import last_line
from vivace.records.finding import Finding, Risk
from vivace.records.measurement import Measurement
from vivace.records.trial import Outcome
from vivace.tune.attempts import Search, is_loader, refusal
from vivace.tune.bench import Bench
from vivace.tune.candidates import alternatives, candidates, combined
from vivace.tune.comparison import speed
from vivace.tune.diagnosis import diagnose
from vivace.tune.references import measured
from vivace.tune.short_scripts import ENOUGH_STEPS, refuse_too_short, shorter_than_asked
from vivace.tune.switchback import sort_out
from vivace.tune.trials import does_not_train

__all__ = ["baseline_of", "search"]

_WINDOW_MS = 3000.0  # a timed window of about three seconds …
_STEPS = (ENOUGH_STEPS, 100)  # … within these numbers of steps
_FIRST_STEPS = 20
_ONLY_ON_TOP = ("compile=max-autotune",)  # minutes of compilation: only where compiled code has paid already
_ONLY_WITHOUT = ("compile",)  # where CUDA graphs have paid, the same code without them will not pay more
_LOOK_AGAIN = 1.2  # so much faster: something else may be the limit now


def search(found: Search) -> None:
    """From the baseline on (``baseline_of``); ``found`` holds the best set and what was left out afterwards."""
    words = _sorted_out(found, candidates(found.findings, measured(found.baseline), found.allowed))
    quick, slow = _split(words)
    _try_all(found, quick)
    slow = _look_again_while_it_pays(found, slow)
    for word in slow:
        kept = found.attempt(word) or _with_its_loader(found, word)
        _other_ways(found, word, kept)
    _feed_faster(found)
    _look_again_while_it_pays(found, [])
    _try_what_is_doubtful(found)
    found.finish()


def _sorted_out(found: Search, words: list[str]) -> list[str]:
    """Without what does not pay where practices are switched inside one process; on a GPU that comes last."""
    seen = sort_out(found.bench, found.baseline, found.again, words)
    found.promising.update(seen.pay)
    for arm in seen.do_not_pay:
        found.pass_over(arm)
    found.doubtful = seen.try_last
    passed = {arm.word for arm in seen.do_not_pay} | set(found.doubtful)
    return [word for word in words if word not in passed]


def _try_what_is_doubtful(found: Search) -> None:
    words, found.doubtful = found.doubtful, ()
    for word in words:
        if found.is_open(word):
            found.attempt(word)


def _look_again_while_it_pays(found: Search, slow: list[str]) -> list[str]:
    """After each large gain the largest remaining cause may be another one. Returns what is left of the slow ones."""
    while speed(measured(found.best)) > _LOOK_AGAIN * found.looked_at and found.has_time():
        quick, slow = _look_again(found, slow)
        _try_all(found, quick)
    return slow


def _try_all(found: Search, words: list[str]) -> None:
    bundle = _bundle(found, words)
    if len(bundle) > 1 and found.attempt_together(bundle):
        words = [word for word in words if word not in bundle]
    for word in words:
        if _is_precision(word) and any(_is_precision(kept) and kept in words + bundle for kept in found.words):
            continue  # found before the other one was kept; if it still has something to act on it is found again
        found.attempt(word)


def _is_precision(word: str) -> bool:
    return get_practice(split_word(word)[0]).family == "precision"


def _bundle(found: Search, words: list[str]) -> list[str]:
    """What may go together: what was found (not only worth a try), and of the precisions the most valuable."""
    promised = {finding.setting or finding.practice for finding in found.findings} | found.promising
    chosen: list[str] = []
    for word in words:
        second_precision = _is_precision(word) and any(_is_precision(other) for other in chosen)
        if not found.is_open(word) or second_precision:
            continue
        if word in promised and combined((*found.words, *chosen), word) is not None:
            chosen.append(word)
    return chosen


def _with_its_loader(found: Search, word: str) -> bool:
    """A practice may not pay only because the loader cannot follow any more: then the two are one attempt."""
    trial = found.last
    if trial is None or trial.outcome is not Outcome.OK or word not in trial.practices or refusal(trial, word):
        return False
    now = diagnose(measured(trial))
    found.look_at(now)
    loaders = [w for w in candidates(now, measured(trial), found.allowed) if is_loader(w) and found.is_open(w)]
    return bool(loaders) and found.attempt_together([word, loaders[0]]) and word in found.words


def _feed_faster(found: Search) -> None:
    """A step that became shorter may wait for its loader: the best trial's own waits tell, without a profile."""
    while True:
        words = [w for w in _not_settled(found, diagnose(measured(found.best))) if is_loader(w)]
        if not any(found.attempt(word) for word in words):
            return


def baseline_of(bench: Bench, allowed: tuple[Risk, ...], reserve_trials: int) -> Search:
    """The command as it is, twice: with evidence, then timed like every trial after it."""
    asked = bench.settings.steps
    bench.settings = replace(bench.settings, steps=asked or _FIRST_STEPS)
    baseline = bench.run("baseline", evidence=True, norms=True, limit_s=bench.budget_s)
    if baseline.outcome is Outcome.TIMEOUT:
        text = f"the command did not finish {bench.settings.steps} steps in {baseline.seconds:.0f} s"
        raise UserError(text, hint="give it more time (--budget MINUTES, --timeout SECONDS) or fewer steps (--steps)")
    refuse_too_short(baseline, bench.command, bench.settings.steps)
    if baseline.outcome is not Outcome.OK:
        hint = "nothing can be tuned before the command itself runs: `vivace measure -- …` shows more"
        raise does_not_train(baseline, hint)
    step = measured(baseline).step_ms
    assert step is not None
    fitting = min(_STEPS[1], max(_STEPS[0], math.ceil(_WINDOW_MS / step.mean)))
    bench.settings = replace(bench.settings, steps=asked or fitting)
    again = bench.run("baseline-again", norms=True)  # for the band of the proof
    if again.outcome is not Outcome.OK:
        raise UserError(f"the command trained once and then did not ({again.outcome}): {last_line(again.message)}")
    bench.say(f"  [dim]·[/] {'baseline':32} {_told_speed(measured(again))}, {again.seconds:.0f} s per trial")
    found = Search(bench, allowed, reserve_trials, baseline, again, diagnose(measured(baseline)))
    if not found.has_time():
        minutes = math.ceil((bench.used_s + found.needed_s) / 60 * 10) / 10
        few = (
            f"not enough time for a trial and its proof ({again.seconds:.0f} s per run): --budget {minutes:g} would do"
        )
        bench.say(f"  [yellow]{few}[/]")
        found.notes.append(few)
    if short := shorter_than_asked(measured(again), bench.command, bench.settings.steps):
        bench.say(f"  [yellow]{escape(short)}[/]")
        found.notes.append(short)
    return found


def _look_again(found: Search, slow: list[str]) -> tuple[list[str], list[str]]:
    found.looked_at = speed(measured(found.best))
    trial = found.best
    if measured(trial).profile is None:
        trial = found.bench.run("look-again", found.words, evidence=True)
    if trial.outcome is not Outcome.OK:
        return [], slow
    now = diagnose(measured(trial))
    quick, slow_now = _split(_not_settled(found, now))
    found.latest = now
    again = {split_word(word)[0] for word in slow_now}
    return quick, [*slow_now, *(word for word in slow if split_word(word)[0] not in again)]


def _not_settled(found: Search, now: tuple[Finding, ...]) -> list[str]:
    """What was found now and is neither kept nor settled."""
    found.look_at(now)
    words = candidates(now, measured(found.best), found.allowed)
    return [word for word in words if found.is_open(word) and word not in found.doubtful]


def _other_ways(found: Search, word: str, kept: bool) -> None:
    """Other arguments of a practice, in its place: CUDA graphs help where compiled code launches too slowly."""
    for other in alternatives((*found.latest, *found.findings), word):
        if other not in (_ONLY_WITHOUT if kept else _ONLY_ON_TOP):
            kept = found.attempt(other) or _with_its_loader(found, other) or kept


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    slow = [word for word in words if get_practice(split_word(word)[0]).try_last]
    return [word for word in words if word not in slow], slow


def _told_speed(m: Measurement) -> str:
    return f"{speed(m):.1f} {'steps' if m.samples_per_s is None else 'samples'}/s"

"""Which set of practices is fastest? What was found is tried all at once, then one more at a time, as long as it pays.

A trial is expensive, and most of what was found pays: so the first trial has all of it, and only where that fails are
they tried one by one, the most valuable first. (The proof then looks at the set without each of its practices.) What
compiles comes last. Once the step is much shorter something else holds it back, often the loader: the evidence is then
taken again and the findings change with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rich.markup import escape

from vivace.errors import UserError
from vivace.practices.engine.registry import get_practice, split_word
from vivace.records.base import last_line
from vivace.records.finding import Finding, Risk
from vivace.records.measurement import Measurement
from vivace.records.proof import Rejected, Rejection
from vivace.records.trial import Outcome, Trial
from vivace.tune.bench import Bench
from vivace.tune.candidates import alternatives, candidates, combined, without
from vivace.tune.comparison import ratio_of, speed, stands_out
from vivace.tune.diagnosis import diagnose
from vivace.tune.looks import SMALLEST_GAIN
from vivace.tune.trials import does_not_train, refuse_too_short

__all__ = ["Search", "baseline_of", "measured", "refusal", "search"]

_WINDOW_MS = 3000.0  # a timed window of about three seconds …
_STEPS = (10, 100)  # … within these numbers of steps
_FIRST_STEPS = 20
_WORTH_MORE = 1.05  # a practice that did not pay is tried again when it is now worth so much more
_ONLY_ON_TOP = ("compile=max-autotune",)  # minutes of compilation: only where compiled code has paid already
_ONLY_WITHOUT = ("compile",)  # where CUDA graphs have paid, the same code without them will not pay more
_WARM = 1.5  # baselines: a trial of compiled code, once it was compiled
_RESERVED_SHARE = 0.5  # of the budget, at most, for the proof
_NO_TIME = "not tried: not enough time for it and the proof"
_LARGEST_NOISE = 0.10
_LOOK_AGAIN = 1.2  # so much faster: something else may be the limit now
_TIMES_SLOWER = 3.0  # a trial that takes so much longer than the baseline is ended
_LONGEST_COMPILE_S = 300.0
_AUTOTUNE_TRIALS = 4.0  # max-autotune compiles for minutes: only where this many trials fit


@dataclass
class Search:
    """The best set so far, and everything that was learnt on the way."""

    bench: Bench
    allowed: tuple[Risk, ...]
    reserve_trials: int
    baseline: Trial
    again: Trial
    findings: tuple[Finding, ...]
    latest: tuple[Finding, ...] = ()
    """What was found when the evidence was taken again."""
    words: tuple[str, ...] = ()
    best: Trial = field(init=False)
    rejected: dict[str, Rejected] = field(default_factory=dict)
    unproven: set[str] = field(default_factory=set)
    """Taken with others, in one trial: whether each of them pays is not known yet."""
    worths: dict[str, float] = field(default_factory=dict)
    """Of each practice, by the last evidence."""
    tried: dict[str, float] = field(default_factory=dict)
    """Practices that did not pay, with what they were worth then."""
    refused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Practices that could not be applied, with the loader's practices at that time: those may make them possible."""
    broken: set[str] = field(default_factory=set)
    """Practices that ended their trial."""

    def __post_init__(self) -> None:
        self.best = self.again
        self.look_at(self.findings)

    def look_at(self, now: tuple[Finding, ...]) -> None:
        """Fresh evidence. Of the findings, those of the baseline stay, and what only showed afterwards is added."""
        known = {finding.practice for finding in self.findings}
        self.findings = (*self.findings, *(finding for finding in now if finding.practice not in known))
        self.worths.update({finding.practice: finding.worth for finding in now})

    def is_open(self, word: str) -> bool:
        """Neither kept nor settled: not tried yet, or worth more than when it was."""
        name = split_word(word)[0]
        if name in self.broken or name in {split_word(kept)[0] for kept in self.words}:
            return False
        if name in self.refused:
            return _is_loader(word) and self.refused[name] != _loaders(self.words)
        return name not in self.tried or self.worths.get(name, 1.0) > _WORTH_MORE * self.tried[name]

    @property
    def noise(self) -> float:
        """What two runs of the same command differ by; a gain must be larger. No more than 10 % is asked for: what is
        less sure than that is for the proof to refuse."""
        difference = abs(math.log(ratio_of(measured(self.baseline), measured(self.again))))
        return max(SMALLEST_GAIN, min(_LARGEST_NOISE, difference))

    def attempt(self, word: str) -> bool:
        """Try one more practice on top of the best set; whether it stays."""
        words = combined(self.words, word)
        if words is None:
            return self._reject(word, Rejection.EXCLUDED, f"{', '.join(self.words)} is kept, and excludes it")
        if not self.has_time(word):
            return self._reject(word, Rejection.NOT_TRIED, _NO_TIME)
        trial = self.bench.run(f"try-{word}", words, limit_s=self._limit_s(word))
        name = split_word(word)[0]
        if trial.outcome is not Outcome.OK:
            self.broken.add(name)
            return self._reject(word, Rejection.DID_NOT_RUN, _why(trial), outcome=trial.outcome)
        if why := refusal(trial, word):
            self.refused[name] = _loaders(self.words)
            return self._reject(word, Rejection.NOT_APPLICABLE, why)
        self.tried[name] = self.worths.get(name, 1.0)
        ratio = ratio_of(measured(self.best), measured(trial))
        if not self._is_faster(trial):
            how = "slower" if ratio < 1 - self.noise else "within the noise"
            return self._reject(word, Rejection.NO_GAIN, f"{ratio:.2f}× ({how})", ratio=ratio)
        self.bench.say(f"  [green]✓[/] {word:32} {ratio:.2f}× on top, {trial.seconds:.0f} s")
        self._keep([word], words, trial)
        return True

    def attempt_together(self, chosen: list[str]) -> bool:
        """Try several more practices at once; whether they stay. The trial has evidence: what is the limit now?"""
        words: tuple[str, ...] = self.words
        for word in chosen:
            words = combined(words, word) or words
        if not self.has_time():
            return False
        limit_s = max(self._limit_s(word) for word in chosen)
        trial = self.bench.run("try-together", words, evidence=True, limit_s=limit_s)
        label = f"{len(chosen)} together"
        if trial.outcome is not Outcome.OK:
            self.bench.say(f"  [dim]–[/] {label:32} [dim]{_first_line(_why(trial))}: one by one[/]")
            return False
        ratio = ratio_of(measured(self.best), measured(trial))
        if not self._is_faster(trial):
            self.bench.say(f"  [dim]–[/] {label:32} [dim]{ratio:.2f}×: one by one[/]")
            return False
        refused = {word: why for word in chosen if (why := refusal(trial, word))}
        if len(refused) == len(chosen):
            return False
        applied = ", ".join(word for word in chosen if word not in refused)
        self.bench.say(f"  [green]✓[/] {label:32} {ratio:.2f}×, {trial.seconds:.0f} s: {applied}")
        for word, why in refused.items():
            self.refused[split_word(word)[0]] = _loaders(self.words)
            self._reject(word, Rejection.NOT_APPLICABLE, why)
            words = without(words, word)
        self._keep(chosen, words, trial)
        self.unproven.update(word for word in chosen if word in words)
        return True

    @property
    def untried(self) -> list[str]:
        """For want of time."""
        return [word for word, rejected in self.rejected.items() if rejected.reason is Rejection.NOT_TRIED]

    def _is_faster(self, trial: Trial) -> bool:
        return stands_out(measured(self.best), measured(trial), self.noise)

    def _keep(self, added: list[str], words: tuple[str, ...], trial: Trial) -> None:
        for word in added:
            if word in words:
                self.rejected.pop(word, None)
        self.words, self.best = words, trial

    def _reject(
        self, word: str, reason: Rejection, why: str, ratio: float | None = None, outcome: Outcome | None = None
    ) -> bool:
        self.rejected[word] = Rejected(practice=word, reason=reason, why=why, ratio=ratio, outcome=outcome)
        self.bench.say(f"  [dim]–[/] {word:32} [dim]{_first_line(why)}[/]")
        return False

    def has_time(self, word: str | None = None) -> bool:
        """Time for this trial, and for the paired runs of the proof after it."""
        trials = _AUTOTUNE_TRIALS if word == "compile=max-autotune" else 1.0
        return self.bench.has_time_for(self._reserved_s + trials * max(self.best.seconds, self.again.seconds))

    @property
    def pair_s(self) -> float:
        """One pair of the proof. The best trial may have compiled with cold caches: later ones will not."""
        return self.again.seconds + min(self.best.seconds, self.warm_s)

    @property
    def warm_s(self) -> float:
        """What a trial takes at most once its code is compiled."""
        return _WARM * self.again.seconds

    @property
    def _reserved_s(self) -> float:
        return min(self.reserve_trials / 2 * self.pair_s, _RESERVED_SHARE * self.bench.budget_s)

    def _limit_s(self, word: str) -> float:
        ordinary = 15.0 + _TIMES_SLOWER * self.again.seconds
        if get_practice(split_word(word)[0]).try_last:
            left = self.bench.left_s - self._reserved_s
            return max(ordinary, min(left, _LONGEST_COMPILE_S))
        return ordinary


def search(bench: Bench, allowed: tuple[Risk, ...], reserve_trials: int) -> Search:
    found = baseline_of(bench, allowed, reserve_trials)
    quick, slow = _split(candidates(found.findings, measured(found.baseline), allowed))
    _try_all(found, quick)
    if speed(measured(found.best)) > _LOOK_AGAIN * speed(measured(found.again)) and found.has_time():
        quick, slow = _look_again(found, slow)
        _try_all(found, quick)
    for word in slow:
        kept = found.attempt(word) or _with_its_loader(found, word)
        _other_ways(found, word, kept)
    _feed_faster(found)
    return found


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


def _is_loader(word: str) -> bool:
    return get_practice(split_word(word)[0]).family == "loader"


def _loaders(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in words if _is_loader(word))


def _bundle(found: Search, words: list[str]) -> list[str]:
    """What may go together: what was found (not only worth a try), and of the precisions the most valuable."""
    promised = {finding.setting or finding.practice for finding in found.findings}
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
    trial = found.bench.trials[-1]
    if trial.outcome is not Outcome.OK or word not in trial.practices or refusal(trial, word):
        return False
    now = diagnose(measured(trial))
    found.look_at(now)
    loaders = [w for w in candidates(now, measured(trial), found.allowed) if _is_loader(w) and found.is_open(w)]
    return bool(loaders) and found.attempt_together([word, loaders[0]]) and word in found.words


def _feed_faster(found: Search) -> None:
    """A step that became shorter may wait for its loader: the best trial's own waits tell, without a profile."""
    while True:
        words = [w for w in _not_settled(found, diagnose(measured(found.best))) if _is_loader(w)]
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
    refuse_too_short(baseline)
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
    return Search(bench, allowed, reserve_trials, baseline, again, diagnose(measured(baseline)))


def _look_again(found: Search, slow: list[str]) -> tuple[list[str], list[str]]:
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
    return [word for word in candidates(now, measured(found.best), found.allowed) if found.is_open(word)]


def _other_ways(found: Search, word: str, kept: bool) -> None:
    """Other arguments of a practice, in its place: CUDA graphs help where compiled code launches too slowly."""
    for other in alternatives((*found.latest, *found.findings), word):
        if other not in (_ONLY_WITHOUT if kept else _ONLY_ON_TOP):
            kept = found.attempt(other) or _with_its_loader(found, other) or kept


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    slow = [word for word in words if get_practice(split_word(word)[0]).try_last]
    return [word for word in words if word not in slow], slow


def measured(trial: Trial) -> Measurement:
    assert trial.measurement is not None, f"trial {trial.name} has no measurement"
    return trial.measurement


def refusal(trial: Trial, word: str) -> str | None:
    """Why a practice that was asked for did not come about; None if it did."""
    answer = measured(trial).practices.get(word)
    if answer is None:
        return "it was not applied"
    return None if answer.applied else answer.text


def _told_speed(m: Measurement) -> str:
    return f"{speed(m):.1f} {'steps' if m.samples_per_s is None else 'samples'}/s"


def _why(trial: Trial) -> str:
    if trial.outcome is Outcome.TIMEOUT:
        return f"ended after {trial.seconds:.0f} s: it takes far longer than the baseline"
    return f"{trial.outcome}: {last_line(trial.message)}"


def _first_line(text: str) -> str:
    """For the terminal: a script's text is no markup."""
    return escape((text.strip().splitlines() or [""])[0][:200])

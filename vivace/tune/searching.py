"""Which set of practices is fastest? Greedy: one more practice at a time, kept only when it beats the noise.

What may be worth most is tried first, what compiles last. Once the step is much shorter something else holds it back
(often the loader), so the evidence is then taken again and the findings change with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from vivace.errors import UserError
from vivace.practices.engine.registry import get_practice, split_word
from vivace.records.finding import Finding, Risk
from vivace.records.measurement import Measurement
from vivace.records.proof import Rejected
from vivace.records.trial import Trial
from vivace.tune.bench import Bench
from vivace.tune.candidates import alternatives, candidates, combined
from vivace.tune.comparison import compare, ratio_of, speed
from vivace.tune.diagnosis import diagnose

__all__ = ["Search", "search"]

_WINDOW_MS = 3000.0  # a timed window of about three seconds …
_STEPS = (10, 100)  # … within these numbers of steps
_FIRST_STEPS = 20
_WORTH_MORE = 1.05  # a practice that did not pay is tried again when it is now worth so much more
_ONLY_ON_TOP = ("compile=max-autotune",)  # minutes of compilation: only where compiled code has paid already
_RESERVED_SHARE = 0.5  # of the budget, at most, for the proof
_SMALLEST_GAIN = 0.01
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
    words: tuple[str, ...] = ()
    best: Trial = field(init=False)
    rejected: dict[str, Rejected] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.best = self.again

    @property
    def noise(self) -> float:
        """What two runs of the same command differ by; a gain must be larger."""
        difference = abs(math.log(ratio_of(measured(self.baseline), measured(self.again))))
        return max(_SMALLEST_GAIN, min(0.10, difference))

    def attempt(self, word: str) -> bool:
        """Try one more practice on top of the best set; whether it stays."""
        words = combined(self.words, word)
        if words is None:
            return self._reject(word, f"{', '.join(self.words)} is kept, and excludes it")
        if not self._has_time(word):
            return self._reject(word, "not tried: the time budget was used up")
        trial = self.bench.run(f"try-{word}", words, limit_s=self._limit_s(word))
        if trial.outcome != "ok":
            return self._reject(word, _why(trial), outcome=trial.outcome)
        told = measured(trial).practices.get(word, "")
        if not told.startswith("applied"):
            return self._reject(word, told or "it was not applied")
        gain = compare([(measured(self.best), measured(trial))])
        if gain.low <= 1.0 or gain.median <= 1.0 + self.noise:
            how = "slower" if gain.median < 1 - self.noise else "within the noise"
            return self._reject(word, f"{gain.median:.2f}× ({how})", ratio=gain.median)
        self.bench.say(f"  [green]✓[/] {word:32} {gain.median:.2f}× on top, {trial.seconds:.0f} s")
        self.rejected.pop(word, None)
        self.words, self.best = words, trial
        return True

    def _reject(self, word: str, why: str, ratio: float | None = None, outcome: str | None = None) -> bool:
        self.rejected[word] = Rejected(practice=word, why=why, ratio=ratio, outcome=outcome)
        self.bench.say(f"  [dim]–[/] {word:32} [dim]{_first_line(why)}[/]")
        return False

    def _has_time(self, word: str) -> bool:
        """Time for this trial, and for the paired runs of the proof after it."""
        trials = _AUTOTUNE_TRIALS if word == "compile=max-autotune" else 1.0
        return self.bench.has_time_for(self._reserved_s + trials * max(self.best.seconds, self.again.seconds))

    @property
    def _reserved_s(self) -> float:
        pairs_s = self.reserve_trials / 2 * (self.best.seconds + self.again.seconds)
        return min(pairs_s, _RESERVED_SHARE * self.bench.budget_s)

    def _limit_s(self, word: str) -> float:
        ordinary = 15.0 + _TIMES_SLOWER * self.again.seconds
        if get_practice(split_word(word)[0]).try_last:
            left = self.bench.left_s - self._reserved_s
            return max(ordinary, min(left, _LONGEST_COMPILE_S))
        return ordinary


def search(bench: Bench, allowed: tuple[Risk, ...], reserve_trials: int) -> Search:
    found = _baseline(bench, allowed, reserve_trials)
    quick, slow = _split(candidates(found.findings, measured(found.baseline), allowed))
    for word in quick:
        found.attempt(word)
    if speed(measured(found.best)) > _LOOK_AGAIN * speed(measured(found.again)) and found._has_time(""):
        quick, slow = _look_again(found, slow)
        for word in quick:
            found.attempt(word)
    for word in slow:
        kept = found.attempt(word)
        _other_ways(found, word, kept)
    return found


def _baseline(bench: Bench, allowed: tuple[Risk, ...], reserve_trials: int) -> Search:
    asked = bench.settings.steps
    bench.settings = replace(bench.settings, steps=asked or _FIRST_STEPS)
    baseline = bench.run("baseline", evidence=True)
    if baseline.outcome != "ok":
        hint = "nothing can be tuned before the command itself runs: `vivace measure -- …` shows more"
        raise UserError(f"the command does not train ({baseline.outcome}): {_last_line(baseline.message)}", hint=hint)
    step = measured(baseline).step_ms
    assert step is not None
    fitting = min(_STEPS[1], max(_STEPS[0], math.ceil(_WINDOW_MS / step.mean)))
    bench.settings = replace(bench.settings, steps=asked or fitting)
    again = bench.run("baseline-again")
    if again.outcome != "ok":
        raise UserError(f"the command trained once and then did not ({again.outcome}): {_last_line(again.message)}")
    bench.say(f"  [dim]·[/] {'baseline':32} {speed(measured(again)):.1f} samples/s, {again.seconds:.0f} s a trial")
    return Search(bench, allowed, reserve_trials, baseline, again, diagnose(measured(baseline)))


def _look_again(found: Search, slow: list[str]) -> tuple[list[str], list[str]]:
    trial = found.bench.run("look-again", found.words, evidence=True)
    if trial.outcome != "ok":
        return [], slow
    now = diagnose(measured(trial))
    worth = {finding.practice: finding.worth for finding in found.findings}
    grown = {f.practice for f in now if f.worth > _WORTH_MORE * worth.get(f.practice, 1.0)}
    found.findings = _merged(found.findings, now)
    kept = {split_word(word)[0] for word in found.words}
    tried = {split_word(word)[0] for word, rejected in found.rejected.items() if rejected.ratio is not None}
    words = candidates(now, measured(trial), found.allowed)
    quick, slow_now = _split([w for w in words if split_word(w)[0] not in kept | (tried - grown)])
    return quick, list(dict.fromkeys([*slow_now, *slow]))


def _merged(first: tuple[Finding, ...], second: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """What was found on the baseline, and what only showed afterwards."""
    known = {finding.practice for finding in first}
    return (*first, *(finding for finding in second if finding.practice not in known))


def _other_ways(found: Search, word: str, kept: bool) -> None:
    """Other arguments of a practice, in its place: CUDA graphs help where compiled code launches too slowly."""
    for other in alternatives(found.findings, word):
        if kept or other not in _ONLY_ON_TOP:
            kept = found.attempt(other) or kept


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    slow = [word for word in words if get_practice(split_word(word)[0]).try_last]
    return [word for word in words if word not in slow], slow


def measured(trial: Trial) -> Measurement:
    assert trial.measurement is not None, f"trial {trial.name} has no measurement"
    return trial.measurement


def _why(trial: Trial) -> str:
    if trial.outcome == "timeout":
        return f"ended after {trial.seconds:.0f} s: it takes far longer than the baseline"
    return f"{trial.outcome}: {_last_line(trial.message)}"


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:200]


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:200]

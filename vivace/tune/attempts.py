"""``Search``: the best set so far, and the trials that decide what joins it. Which trials to run is not decided here.

A trial that does not seem faster is compared with runs of the best set close in time, before it and after it: between
trials that set is run again. Such repeats take a third of the search at most (and one more run at its end). What could
not be judged by then is run again, in turn with the best set: with the time that is left once the best set is proved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.markup import escape

from vivace.practices.engine.registry import get_practice, split_word
from vivace.protocol.switchback import ArmSeen
from vivace.records.base import last_line
from vivace.records.finding import Finding, Risk
from vivace.records.proof import Rejected, Rejection
from vivace.records.trial import Outcome, Trial
from vivace.tune.bench import Bench
from vivace.tune.candidates import combined, without
from vivace.tune.comparison import ratio_of, speed, stands_out
from vivace.tune.looks import SMALLEST_GAIN
from vivace.tune.noise import MOST_ASKED, Compared, Judgement, chance_after, runs_to_tell
from vivace.tune.references import References, measured

__all__ = ["Search", "first_line", "is_loader", "refusal", "why_it_ended"]

_WORTH_MORE = 1.05  # a practice that did not pay is tried again when it is now worth so much more
_WARM = 1.5  # baselines: a trial of compiled code, once it was compiled
_RESERVED_SHARE = 0.5  # of the budget, at most, for the proof
# Of the pairs of a proof: what is left for it, so that something is tried at all, and so that what may bring much is.
# A large gain needs fewer pairs.
_LEFT_FOR_THE_FIRST = 1 / 3
_LEFT_FOR_A_LARGE_ONE = 2 / 3
_LARGE = 1.15
_NO_TIME = "not tried: not enough time for it and the proof"
_TIMES_SLOWER = 3.0  # a trial that takes so much longer than the baseline is ended
_LONGEST_COMPILE_S = 300.0
_AUTOTUNE_TRIALS = 4.0  # max-autotune compiles for minutes: only where this many trials fit
_REPEATS_PER_TRIAL = 0.5  # seconds of repeats per second of other trials, at most
_BY_SPEED = (Rejection.NO_GAIN, Rejection.UNJUDGED)
_FAR_LESS = 0.25  # of what so many runs can tell: a finding that promises less is not worth them
_MOST_AGAIN = 5  # more runs of what could not be judged: with 6 of each, runs may differ by a fifth (one sd) and tell


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
    attempted: set[str] = field(default_factory=set)
    """Words that were run, kept or not."""
    promising: set[str] = field(default_factory=set)
    """Words that paid where practices were switched inside one process."""
    doubtful: tuple[str, ...] = ()
    """Words that did not, on a GPU: they are tried last."""
    is_proved: bool = False
    """The best set has had its paired runs: no time is kept for them any more."""
    last: Trial | None = None
    """The last trial of one more practice."""
    repeats_s: float = 0.0
    """Spent on runs of a set that was run before."""
    looked_at: float = field(init=False)
    """Speed of the set that the last evidence was taken of."""
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.best = self.again
        self.looked_at = speed(measured(self.again))
        self.references = References(self.baseline, self.again)
        self.look_at(self.findings)

    def look_at(self, now: tuple[Finding, ...]) -> None:
        """Fresh evidence. Of the findings, those of the baseline stay, and what only showed afterwards is added."""
        known = {finding.practice for finding in self.findings}
        self.findings = (*self.findings, *(finding for finding in now if finding.practice not in known))
        self.worths.update({finding.practice: finding.worth for finding in now})

    def is_open(self, word: str) -> bool:
        """Neither kept nor settled: not tried yet, or worth more than when it was."""
        name = split_word(word)[0]
        if name in self.broken:
            return False
        if name in {split_word(kept)[0] for kept in self.words}:  # two workers pay, and eight may pay more
            return is_loader(word) and word not in self.attempted
        if name in self.refused:
            return is_loader(word) and self.refused[name] != _loaders(self.words)
        return name not in self.tried or self.worths.get(name, 1.0) > _WORTH_MORE * self.tried[name]

    @property
    def noise(self) -> float:
        """What runs of one set differ by; a gain must be larger. No more than 10 % is asked for: what is less sure than
        that is for the proof to refuse."""
        return max(SMALLEST_GAIN, min(MOST_ASKED, self.references.first_difference))

    def attempt(self, word: str) -> bool:
        """Try one more practice on top of the best set; whether it stays."""
        if word in self.words:
            return True
        words = combined(self.words, word)
        if words is None:
            return self._reject(word, Rejection.EXCLUDED, f"{', '.join(self.words)} is kept, and excludes it")
        if not self.has_time(word):
            return self._reject(word, Rejection.NOT_TRIED, _NO_TIME)
        trial = self.bench.run(f"try-{word}", words, limit_s=self._limit_s(word))
        self.attempted.add(word)
        self.last = trial
        name = split_word(word)[0]
        if trial.outcome is not Outcome.OK:
            self.broken.add(name)
            if trial.outcome is Outcome.TIMEOUT and self.references.is_unsteady:
                return self._reject(word, Rejection.UNJUDGED, why_it_ended(trial), outcome=trial.outcome)
            return self._reject(word, Rejection.DID_NOT_RUN, why_it_ended(trial), outcome=trial.outcome)
        if why := refusal(trial, word):
            self.refused[name] = _loaders(self.words)
            return self._reject(word, Rejection.NOT_APPLICABLE, why)
        self.tried[name] = self.worths.get(name, 1.0)
        ratio = ratio_of(measured(self.references.latest), measured(trial))
        if not self._is_faster(trial):
            self.references.doubt(word, trial)
            self._repeat()
            self.rejected.pop(word, None)
            self._settle()
            return False
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
        self.attempted.update(chosen)
        label = f"{len(chosen)} together"
        if trial.outcome is not Outcome.OK:
            self.bench.say(f"  [dim]–[/] {label:32} [dim]{first_line(why_it_ended(trial))}: one by one[/]")
            return False
        ratio = ratio_of(measured(self.references.latest), measured(trial))
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

    def pass_over(self, arm: ArmSeen) -> None:
        """It did not pay where it was switched on and off inside one process: no trial of its own."""
        name = split_word(arm.word)[0]
        self.tried[name] = self.worths.get(name, 1.0)
        why = f"{arm.ratio:.2f}× ({arm.low:.2f}–{arm.high:.2f}) inside one process, in {arm.pairs} pairs of windows"
        self._reject(arm.word, Rejection.NO_GAIN, why, ratio=arm.ratio)

    @property
    def untried(self) -> list[str]:
        """For want of time."""
        return [word for word, rejected in self.rejected.items() if rejected.reason is Rejection.NOT_TRIED]

    def _is_faster(self, trial: Trial) -> bool:
        return stands_out(measured(self.references.latest), measured(trial), self.noise)

    def _keep(self, added: list[str], words: tuple[str, ...], trial: Trial) -> None:
        for word in added:
            if word in words:
                self.rejected.pop(word, None)
        self.words, self.best = words, trial
        self.references.begin(trial)

    def finish(self) -> None:
        """The last trials get a run of the best set after them, too; then all are judged by all that is known."""
        if self.references.has_open_doubts:
            self._repeat(at_the_end=True)
        self._settle()
        if self.words:
            self._say_what_would_suffice()
        else:
            self.judge_what_is_doubtful()  # there is nothing to prove first
        if self.repeats_s:
            spent = f"{self.repeats_s:.0f} of {self.bench.used_s:.0f} s"
            self.bench.say(f"  [dim]·[/] {'repeats, to see the noise':32} [dim]{spent}[/]")

    def _repeat(self, at_the_end: bool = False) -> None:
        """Run the best set once more, so that the trials since its last run have one before them and one after."""
        one_s = min(self.best.seconds, self.warm_s)
        affordable = self.repeats_s + one_s <= _REPEATS_PER_TRIAL * (self.bench.used_s - self.repeats_s)
        if not self.has_time() or not (affordable or at_the_end):
            return
        name = "best" if self.words else "baseline"
        trial = self.bench.run(f"{name}-repeat{self.references.number}", self.words)
        self.repeats_s += trial.seconds
        if trial.outcome is Outcome.OK:
            self.references.add(trial)

    @property
    def unjudged(self) -> list[str]:
        """Words that ran, on a machine that is too noisy for one run to tell whether they pay."""
        return [
            word
            for word, rejected in self.rejected.items()
            if rejected.reason is Rejection.UNJUDGED and rejected.outcome is None
        ]

    def judge_what_is_doubtful(self) -> None:
        self._settle()
        for word in self.unjudged:
            if self._may_tell(word):
                self._judge_again(word)
        self._say_what_would_suffice()

    def _may_tell(self, word: str) -> bool:
        """Whether the noise of all the runs that may be added is not far above what the finding promises at most."""
        worth = self.worths.get(split_word(word)[0])
        return worth is None or math.log(worth) >= _FAR_LESS * chance_after(1 + _MOST_AGAIN, self.references.run_sd)

    def _judge_again(self, word: str) -> None:
        """Run it and the best set in turn, with the time that the proof does not need, until that tells."""
        for number in range(_MOST_AGAIN):
            words = combined(self.words, word)
            if words is None or word not in self.unjudged or not self.has_time_for_pair(word):
                return
            trial = self.bench.run(f"again{number + 1}-{word}", words, limit_s=self._limit_s(word))
            if trial.outcome is not Outcome.OK:
                return
            self.repeats_s += trial.seconds
            self.references.doubt(word, trial)
            self._repeat(at_the_end=True)
            self._settle()

    def _say_what_would_suffice(self) -> None:
        needed = runs_to_tell(self.references.run_sd)
        for word in self.unjudged:
            known = self.rejected[word]
            minutes = max(1, math.ceil(needed * self.pair_s / 60))
            why = f"{known.why}; {needed} runs of each would tell (about {minutes} min more), or a quieter machine"
            self.rejected[word] = known.model_copy(update={"why": why})

    def _settle(self) -> None:
        """Judge each trial that did not seem faster, the earlier ones again: runs that came later may tell that the
        machine had changed."""
        for word, compared in self.references.judged().items():
            known = self.rejected.get(word)
            if word in self.words or (known is not None and known.reason not in _BY_SPEED):
                continue
            if compared.judgement is Judgement.FASTER:
                self._keep_after_all(word, compared)
                return
            now = self.rejected[word] = _rejected(word, compared)
            if known is None or known.reason is not now.reason:
                self._tell(word)

    def _keep_after_all(self, word: str, compared: Compared) -> None:
        words, trial = combined(self.words, word), self.references.last_trial_of(word)
        assert words is not None
        self.bench.say(f"  [green]✓[/] {word:32} {compared.ratio:.2f}× on top, by several runs of each")
        self._keep([word], words, trial)

    def _tell(self, word: str) -> bool:
        self.bench.say(f"  [dim]–[/] {word:32} [dim]{first_line(self.rejected[word].why)}[/]")
        return False

    def _reject(
        self, word: str, reason: Rejection, why: str, ratio: float | None = None, outcome: Outcome | None = None
    ) -> bool:
        self.rejected[word] = Rejected(practice=word, reason=reason, why=why, ratio=ratio, outcome=outcome)
        return self._tell(word)

    def has_time(self, word: str | None = None) -> bool:
        """Time for this trial, and for the paired runs of the proof after it."""
        trials = _AUTOTUNE_TRIALS if word == "compile=max-autotune" else 1.0
        return self.bench.has_time_for(self._reserved_s(word) + trials * max(self.best.seconds, self.again.seconds))

    def has_time_for_pair(self, word: str) -> bool:
        """Time for this trial and one of the best set, and for the paired runs of the proof after them."""
        return self.has_time(word) and self.bench.has_time_for(self._reserved_s() + self.pair_s)

    @property
    def pair_s(self) -> float:
        """One pair of the proof. The best trial may have compiled with cold caches: later ones will not."""
        return self.again.seconds + min(self.best.seconds, self.warm_s)

    @property
    def warm_s(self) -> float:
        """What a trial takes at most once its code is compiled."""
        return _WARM * self.again.seconds

    @property
    def needed_s(self) -> float:
        """For one trial and the shortest proof, from now on."""
        return _LEFT_FOR_THE_FIRST * self.reserve_trials / 2 * self.pair_s + self.again.seconds

    def _reserved_s(self, word: str | None = None) -> float:
        if self.is_proved:
            return 0.0
        share = 1.0
        if not self.attempted:
            share = _LEFT_FOR_THE_FIRST
        elif word is not None and self.worths.get(split_word(word)[0], 1.0) >= _LARGE:
            share = _LEFT_FOR_A_LARGE_ONE
        return min(share * self.reserve_trials / 2 * self.pair_s, _RESERVED_SHARE * self.bench.budget_s)

    def _limit_s(self, word: str) -> float:
        ordinary = 15.0 + _TIMES_SLOWER * self.again.seconds
        if get_practice(split_word(word)[0]).try_last:
            left = self.bench.left_s - self._reserved_s(word)
            return max(ordinary, min(left, _LONGEST_COMPILE_S))
        return ordinary


def _rejected(word: str, compared: Compared) -> Rejected:
    if compared.judgement is Judgement.UNJUDGED:
        factor = math.exp(compared.noise)
        why = f"{compared.judgement}: {compared.ratio:.2f}×, where chance alone can make a factor of {factor:.1f}"
        return Rejected(practice=word, reason=Rejection.UNJUDGED, why=why, ratio=compared.ratio, noise=factor)
    why = f"{compared.ratio:.2f}× ({compared.judgement})"
    return Rejected(
        practice=word, reason=Rejection.NO_GAIN, why=why, ratio=compared.ratio, noise=math.exp(compared.noise)
    )


def refusal(trial: Trial, word: str) -> str | None:
    """Why a practice that was asked for did not come about; None if it did."""
    answer = measured(trial).practices.get(word)
    if answer is None:
        return "it was not applied"
    return None if answer.applied else answer.text


def is_loader(word: str) -> bool:
    return get_practice(split_word(word)[0]).family == "loader"


def _loaders(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in words if is_loader(word))


def why_it_ended(trial: Trial) -> str:
    if trial.outcome is Outcome.TIMEOUT:
        return f"ended after {trial.seconds:.0f} s: it takes far longer than the baseline"
    return f"{trial.outcome}: {last_line(trial.message)}"


def first_line(text: str) -> str:
    """For the terminal: a script's text is no markup."""
    return escape((text.strip().splitlines() or [""])[0][:200])

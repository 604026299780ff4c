"""``Case``: a proof as it grows, handed from step to step."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, field

from vivace.records.proof import Gain, HarmVerdict, Rejected, Rejection
from vivace.records.trial import Trial
from vivace.tune.attempts import Search
from vivace.tune.bench import Bench
from vivace.tune.pairs import Verdict, is_exact, noise_interval, paired

__all__ = ["Case", "is_harmed"]


@dataclass
class Case:
    """``words``: the set that is to be proved. ``verdict``: what the last paired runs say; None before the first."""

    bench: Bench
    found: Search
    rounds: int
    harm_steps: int | None
    words: tuple[str, ...]
    lasts: dict[str, Trial] = field(default_factory=dict)
    """Trials of the set without one practice."""
    of_this_set: dict[str, Trial] = field(default_factory=dict)
    """Those among them that are of the set which was proved in the end."""
    gains: tuple[Gain, ...] = ()
    notes: list[str] = field(default_factory=list)
    _verdict: Verdict | None = None

    @property
    def verdict(self) -> Verdict:
        assert self._verdict is not None, "no pairs were run yet"
        return self._verdict

    @verdict.setter
    def verdict(self, verdict: Verdict) -> None:
        self._verdict = verdict

    @property
    def first_pairs_s(self) -> float:
        """One pair more than is asked for: what is kept if the training changes must be proved too."""
        pairs = self.rounds if is_exact(self.found.words) else self.rounds + 1
        return pairs * self.found.pair_s

    def run_pairs(self, words: tuple[str, ...], label: str) -> Verdict:
        return paired(self.bench, self.found, words, self.rounds, label, self.harm_steps)

    def reject(self, word: str, reason: Rejection, why: str, ratio: float | None = None) -> None:
        self.found.rejected[word] = Rejected(practice=word, reason=reason, why=why, ratio=ratio)

    def drop(self, verdict: Verdict, reason: Rejection, why: str) -> None:
        """Nothing is recommended after all; what was in the set says why."""
        count = len(verdict.words)
        together = f" ({verdict.speedup.median:.2f}× with {count} practice{'s' if count != 1 else ''})"
        for word in verdict.words:
            ratio = verdict.speedup.median if count == 1 and verdict.pairs else None
            self.reject(word, reason, why + (together if verdict.pairs else ""), ratio)
        interval = noise_interval(self.found, verdict.pairs)
        self.verdict = Verdict((), verdict.pairs, interval, verdict.harm, verdict.ended)

    def resume_with(self, needed_s: float) -> str:
        """The command that goes on with so much more time: what was run is not run again."""
        minutes = math.ceil((self.bench.used_s + needed_s) / 60)
        return f"vivace tune --resume {shlex.quote(str(self.bench.folder))} --budget {minutes}"


def is_harmed(verdict: Verdict) -> bool:
    return verdict.harm is not None and verdict.harm.verdict is HarmVerdict.OUTSIDE

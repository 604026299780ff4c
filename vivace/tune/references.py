"""The runs that trials of the search are compared with: the best set so far, run again between trials.

A trial that does not seem faster is a doubt. It is judged by the runs of the best set nearest in time, before it and
after it, and judged again at the end, when more is known about the noise. Pure: whoever holds this runs the trials.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vivace.records.measurement import Measurement
from vivace.records.trial import Trial
from vivace.tune.comparison import ratio_of
from vivace.tune.noise import LARGEST_NOISE, Compared, compare, compare_runs, noise_of, run_sd

__all__ = ["References", "measured"]


@dataclass(frozen=True)
class _Doubt:
    """A trial that did not seem faster than ``runs[before - 1]``. Runs of that set that come later join ``runs``."""

    word: str
    trial: Trial
    runs: list[Trial]
    before: int

    @property
    def nearest(self) -> list[Measurement]:
        return [measured(run) for run in self.runs[self.before - 1 : self.before + 1]]

    @property
    def is_open(self) -> bool:
        return len(self.runs) == self.before


class References:
    """``baseline``: the unchanged job with evidence, ``again``: timed like every trial after it."""

    def __init__(self, baseline: Trial, again: Trial) -> None:
        self._baseline = baseline
        self._groups = [[again]]  # the runs of every set that was the best one, in their order
        self._doubts: list[_Doubt] = []

    @property
    def latest(self) -> Trial:
        """The last run of the best set."""
        return self._groups[-1][-1]

    @property
    def unchanged(self) -> list[Trial]:
        """The runs of the job as it is that were timed like every trial."""
        return self._groups[0]

    @property
    def first_difference(self) -> float:
        """Of the logarithms of the speeds of the first two runs. The first may have found cold caches."""
        return abs(math.log(ratio_of(measured(self._baseline), measured(self._groups[0][0]))))

    @property
    def noise(self) -> float:
        """Of neighbouring runs of one set; before there are such, of the first two runs."""
        groups = [[measured(run) for run in runs] for runs in self._groups]
        return noise_of(groups) if any(len(runs) > 1 for runs in groups) else self.first_difference

    @property
    def is_unsteady(self) -> bool:
        """Whether single runs say little on this machine."""
        return self.noise > LARGEST_NOISE

    @property
    def has_open_doubts(self) -> bool:
        """Whether trials since the last run of the best set have none after them."""
        return any(doubt.is_open for doubt in self._doubts if doubt.runs is self._groups[-1])

    @property
    def number(self) -> int:
        """Of runs of the best set."""
        return len(self._groups[-1])

    def begin(self, best: Trial) -> None:
        """Another set is the best one."""
        self._groups.append([best])

    def add(self, repeat: Trial) -> None:
        self._groups[-1].append(repeat)

    def doubt(self, word: str, trial: Trial) -> None:
        runs = self._groups[-1]
        self._doubts.append(_Doubt(word, trial, runs, len(runs)))

    @property
    def run_sd(self) -> float:
        """Of the logarithm of the speed of one run, by the repeats of the best sets and of what was tried again."""
        return run_sd(self._runs_of_one_set())

    def judged(self) -> dict[str, Compared]:
        """Each word that did not seem faster, by all that is known now."""
        return {word: self._judged(self._trials_of(word)) for word in self._words()}

    def last_trial_of(self, word: str) -> Trial:
        return self._trials_of(word)[-1].trial

    def _words(self) -> list[str]:
        return list(dict.fromkeys(doubt.word for doubt in self._doubts))

    def _trials_of(self, word: str) -> list[_Doubt]:
        """On top of the set that it was tried on last."""
        doubts = [doubt for doubt in self._doubts if doubt.word == word]
        return [doubt for doubt in doubts if doubt.runs is doubts[-1].runs]

    def _judged(self, doubts: list[_Doubt]) -> Compared:
        if len(doubts) == 1:
            return compare(measured(doubts[0].trial), doubts[0].nearest, self.noise)
        seen = sum(len(runs) - 1 for runs in self._runs_of_one_set())
        return compare_runs([(measured(doubt.trial), doubt.nearest) for doubt in doubts], self.run_sd, seen)

    def _runs_of_one_set(self) -> list[list[Measurement]]:
        tried_again = [[measured(doubt.trial) for doubt in self._trials_of(word)] for word in self._words()]
        return [*([measured(run) for run in runs] for runs in self._groups), *tried_again]


def measured(trial: Trial) -> Measurement:
    assert trial.measurement is not None, f"trial {trial.name} has no measurement"
    return trial.measurement

"""Can a trial of the search be told from noise? One run against the nearest runs of the set that it should beat.

Pure. No proof: a trial that seems faster goes on to the paired runs, which have intervals of their own. But a trial
that does not seem faster is left out for good, so that must not be the machine's doing. A trial is called slower, or
no different, only where the machine was steady enough to say so. Otherwise it could not be judged.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from vivace.records.measurement import Measurement
from vivace.tune.comparison import speed, step_error
from vivace.tune.looks import SMALLEST_GAIN
from vivace.tune.student import t_quantile

__all__ = [
    "LARGEST_NOISE", "MOST_ASKED", "Compared", "Judgement", "chance_after", "compare", "compare_runs", "noise_of",
    "run_sd", "runs_to_tell",
]  # fmt: skip

# With more noise than this, a practice that brings 20 % may look like one that brings nothing. Neighbouring runs of a
# job on an H200 differ by 4 % (median of 23), 20 of 23 by less than 10 % (public_scripts_trials.csv): a noise of 7 and
# 17 %. Runs on two cores that others use too differ by a factor of 1.1 to 5.6 (aa.csv).
LARGEST_NOISE = 0.20
MOST_ASKED = 0.10  # a gain need not be larger: what is less sure than that is for the proof to refuse
_INSIDE = 0.95
_QUANTILE = NormalDist().inv_cdf((1 + _INSIDE) / 2)


class Judgement(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "within the noise"
    UNJUDGED = "could not be judged"


@dataclass(frozen=True)
class Compared:
    judgement: Judgement
    ratio: float
    """Of the trial's speed to that of its references, on a logarithmic scale in the middle of them."""
    noise: float
    """What chance may do to the logarithm of that ratio."""


def compare(trial: Measurement, references: Sequence[Measurement], noise: float) -> Compared:
    """``references``: the runs of the set without it that are nearest in time, before the trial and after it.
    ``noise``: what other runs of one set differ by in this search."""
    logs = [math.log(speed(one)) for one in references]
    log_ratio = math.log(speed(trial)) - sum(logs) / len(logs)
    chance = max(SMALLEST_GAIN, noise, max(logs) - min(logs), _by_steps(references, trial))
    if log_ratio < -chance:
        judgement = Judgement.SLOWER
    elif chance <= LARGEST_NOISE and log_ratio <= LARGEST_NOISE:
        judgement = Judgement.NO_DIFFERENCE
    else:
        judgement = Judgement.UNJUDGED
    return Compared(judgement, math.exp(log_ratio), chance)


def compare_runs(runs: Sequence[tuple[Measurement, Sequence[Measurement]]], sd: float, seen: int) -> Compared:
    """The same by several trials, each beside its nearest references: chance shrinks with their number.

    ``sd``: of the logarithm of one run's speed, known from ``seen`` differences.
    """
    logs = [math.log(speed(trial)) - _mean_log(references) for trial, references in runs]
    log_ratio = sum(logs) / len(logs)
    chance = max(SMALLEST_GAIN, t_quantile(_INSIDE, max(1, seen)) * sd * math.sqrt(_variances(runs)))
    if log_ratio > (min(chance, MOST_ASKED) if chance <= LARGEST_NOISE else chance):
        judgement = Judgement.FASTER
    elif log_ratio < -chance:
        judgement = Judgement.SLOWER
    else:
        judgement = Judgement.NO_DIFFERENCE if chance <= LARGEST_NOISE else Judgement.UNJUDGED
    return Compared(judgement, math.exp(log_ratio), chance)


def runs_to_tell(sd: float) -> int:
    """So many trials, each between two references, can be judged on a machine as noisy as this."""
    return max(1, math.ceil(2 * (_QUANTILE * sd / LARGEST_NOISE) ** 2))


def chance_after(runs: int, sd: float) -> float:
    """What chance may do to the logarithm of the ratio of two sets with so many runs each."""
    return _QUANTILE * sd * math.sqrt(2 / runs)


def _variances(runs: Sequence[tuple[Measurement, Sequence[Measurement]]]) -> float:
    """Of the mean over ``runs``, in units of one run's variance. A reference between two trials counts for both."""
    weights: defaultdict[int, float] = defaultdict(float)
    for _, references in runs:
        for one in references:
            weights[id(one)] += 1 / len(references) / len(runs)
    return 1 / len(runs) + sum(weight**2 for weight in weights.values())


def noise_of(groups: Sequence[Sequence[Measurement]]) -> float:
    """How far one run may lie from two of the same set, by chance. ``groups``: the runs of each set, in their order."""
    return _QUANTILE * run_sd(groups) * math.sqrt(1 + 1 / 2)


def run_sd(groups: Sequence[Sequence[Measurement]]) -> float:
    """Of the logarithm of a run's speed, from the differences of neighbouring runs: a machine that drifts slowly is not
    noisy."""
    differences = [
        math.log(speed(after) / speed(before)) for runs in groups for before, after in itertools.pairwise(runs)
    ]
    if not differences:
        return 0.0
    return math.sqrt(sum(difference**2 for difference in differences) / len(differences) / 2)


def _mean_log(runs: Sequence[Measurement]) -> float:
    return sum(math.log(speed(one)) for one in runs) / len(runs)


def _by_steps(references: Sequence[Measurement], trial: Measurement) -> float:
    of_references = math.hypot(*(step_error(one) for one in references)) / len(references)
    return _QUANTILE * math.hypot(of_references, step_error(trial))

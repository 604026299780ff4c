"""Can a trial of the search be told from noise? One run against the nearest runs of the set that it should beat.

Pure. No proof: a trial that seems faster goes on to the paired runs, which have intervals of their own. But a trial
that does not seem faster is left out for good, so that must not be the machine's doing. A trial is called slower, or
no different, only where the machine was steady enough to say so. Otherwise it could not be judged.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from vivace.records.measurement import Measurement
from vivace.tune.comparison import speed, step_error
from vivace.tune.looks import SMALLEST_GAIN

__all__ = ["LARGEST_NOISE", "Compared", "Judgement", "compare", "noise_of"]

# With more noise than this, a practice that brings 20 % may look like one that brings nothing. Neighbouring runs of a
# job on an H200 differ by 4 % (median of 23), 20 of 23 by less than 10 % (public_scripts_trials.csv): a noise of 7 and
# 17 %. Runs on two cores that others use too differ by a factor of 1.1 to 5.6 (aa.csv).
LARGEST_NOISE = 0.20
_INSIDE = 0.95
_QUANTILE = NormalDist().inv_cdf((1 + _INSIDE) / 2)


class Judgement(StrEnum):
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


def noise_of(groups: Sequence[Sequence[Measurement]]) -> float:
    """How far one run may lie from two of the same set, by chance. ``groups``: the runs of each set, in their order.

    From the differences of neighbouring runs: a machine that drifts slowly is not noisy.
    """
    differences = [
        math.log(speed(after) / speed(before)) for runs in groups for before, after in itertools.pairwise(runs)
    ]
    if not differences:
        return 0.0
    run_sd = math.sqrt(sum(difference**2 for difference in differences) / len(differences) / 2)
    return _QUANTILE * run_sd * math.sqrt(1 + 1 / 2)


def _by_steps(references: Sequence[Measurement], trial: Measurement) -> float:
    of_references = math.hypot(*(step_error(one) for one in references)) / len(references)
    return _QUANTILE * math.hypot(of_references, step_error(trial))

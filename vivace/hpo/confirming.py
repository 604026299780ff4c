"""How sure the answer is: the best configuration and the user's own run again over seeds, and are compared in pairs.

The best of many noisy trials was also the luckiest, so its figure in the search flatters it. Fresh seeds do not know
which one was best. The interval is Student's, of the differences between the two runs of one seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from vivace.hpo.asked import Asked
from vivace.hpo.outcome import ARM, SEED, counts, values_of
from vivace.hpo.space import Value
from vivace.records.hpo import Arm, Compared, Confirmation
from vivace.tune.student import t_quantile

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

__all__ = ["CONFIRMATION", "ArmName", "compare", "confirmation_of", "missing_runs"]

CONFIRMATION = " (confirmation)"
"""After the study's name, for the second study in its storage."""


class ArmName(StrEnum):
    BEST = "best"
    BASELINE = "baseline"


def missing_runs(
    asked: Asked, best: Mapping[str, Value], trials: Sequence[FrozenTrial]
) -> list[tuple[dict[str, Value], dict[str, Any]]]:
    """The runs that are not queued yet, as (values, attributes): both arms with every seed, seed by seed."""
    arms: dict[str, dict[str, Value]] = {ArmName.BEST: dict(best), ArmName.BASELINE: dict(asked.baseline)}
    known = {(trial.user_attrs[ARM], trial.user_attrs[SEED]) for trial in _of_arms(arms, trials) if counts(trial)}
    wanted = [(arm, seed) for seed in range(1, asked.confirm_seeds + 1) for arm in ArmName]
    return [(arms[arm], {ARM: str(arm), SEED: seed}) for arm, seed in wanted if (arm, seed) not in known]


def confirmation_of(asked: Asked, best: FrozenTrial, trials: Sequence[FrozenTrial]) -> Confirmation | None:
    """None: no run has ended yet. A seed of which one run failed is left out of the comparison."""
    from optuna.trial import TrialState

    values: dict[str, dict[int, float]] = {arm: {} for arm in ArmName}
    trials = _of_arms({ArmName.BEST: best.params, ArmName.BASELINE: asked.baseline}, trials)
    for trial in trials:
        if trial.state is TrialState.COMPLETE and trial.value is not None:
            values[trial.user_attrs[ARM]][trial.user_attrs[SEED]] = trial.value
    best_runs, own_runs = values[ArmName.BEST], values[ArmName.BASELINE]
    if not best_runs and not own_runs:
        return None
    seeds = sorted(best_runs.keys() & own_runs.keys())
    return Confirmation(
        seeds=asked.confirm_seeds,
        best=Arm(values=asked.space.texts(best.params), metric=tuple(best_runs.values())),
        baseline=Arm(values=asked.space.texts(asked.baseline), metric=tuple(own_runs.values())),
        baseline_is_middle=asked.defaults is None,
        best_seen=best.value if best.value is not None else math.nan,
        compared=compare([best_runs[seed] for seed in seeds], [own_runs[seed] for seed in seeds]),
        best_mean=compare(list(best_runs.values()), [0.0] * len(best_runs)),
        failed_runs=sum(trial.state in (TrialState.FAIL, TrialState.PRUNED) and counts(trial) for trial in trials),
    )


def _of_arms(arms: Mapping[str, Mapping[str, Value]], trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Without runs of an earlier best: a study that was resumed may have found a better one."""
    return [trial for trial in trials if values_of(trial) == arms[trial.user_attrs[ARM]]]


def compare(best: Sequence[float], other: Sequence[float], inside: float = 0.95) -> Compared | None:
    """The mean of the paired differences with its interval; None for fewer than two pairs."""
    differences = [one - two for one, two in zip(best, other, strict=True)]
    if len(differences) < 2:
        return None
    mean = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    half = t_quantile(inside, len(differences) - 1) * error
    return Compared(mean=mean, low=mean - half, high=mean + half, pairs=len(differences))

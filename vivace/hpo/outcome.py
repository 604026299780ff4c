"""How a trial ended, and what is kept of it: in Optuna's storage as one attribute, ``vivace``, of the trial.

Whether a trial counts is decided here. A trial whose worker was killed or stopped is *given back*: it does not count,
and another trial with the same values takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from vivace.hpo.budget import Stretch
from vivace.hpo.space import Value

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

__all__ = [
    "ARM", "ATTEMPT", "FAILURES", "OUTCOME", "RETRY_OF", "SEED", "WORKER", "Ended", "Outcome", "close", "counts",
    "outcome_of", "stretches", "values_of",
]  # fmt: skip

WORKER = "vivace:worker"
"""Which worker runs it: the name of its lease."""
OUTCOME = "vivace:outcome"
RETRY_OF = "vivace:retry_of"
ATTEMPT = "vivace:attempt"
"""How many workers were killed over this configuration before."""
ARM, SEED = "vivace:arm", "vivace:seed"


class Ended(StrEnum):
    COMPLETE = "complete"
    PRUNED = "pruned"
    DIVERGED = "diverged"
    """The metric is NaN or infinite."""
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    NO_METRIC = "no metric"
    BUDGET = "budget"
    """Stopped because the study's budget was used up."""
    WORKERS_KILLED = "workers killed"
    """Given up: several workers were killed over it."""
    GIVEN_BACK = "given back"
    """Its worker was killed or stopped; another trial takes its place."""
    DUPLICATE = "duplicate"
    """Never run: another trial has the same values."""


FAILURES = frozenset({Ended.CRASHED, Ended.TIMEOUT, Ended.NO_METRIC, Ended.WORKERS_KILLED})
_PRUNED = frozenset({Ended.PRUNED, Ended.DIVERGED, Ended.BUDGET})
_DO_NOT_COUNT = frozenset({Ended.GIVEN_BACK, Ended.DUPLICATE})


@dataclass(frozen=True)
class Outcome:
    """``readings``: how often the metric came. ``killed``: of a trial that is given back, that its worker died."""

    ended: Ended
    value: float | None = None
    reason: str = ""
    seconds: float = 0.0
    readings: int = 0
    exit_code: int | None = None
    energy_j: float | None = None
    killed: bool = False

    def as_attribute(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_attribute(cls, data: Mapping[str, Any]) -> Outcome:
        return cls(**{**data, "ended": Ended(data["ended"])})


def outcome_of(trial: FrozenTrial) -> Outcome | None:
    """None: it waits, it runs, or another program ran it."""
    data = trial.user_attrs.get(OUTCOME)
    return Outcome.of_attribute(data) if data is not None else None


def close(study: Study, trial: FrozenTrial, outcome: Outcome) -> None:
    """Note the outcome, then end the trial. Whoever is killed in between has lost nothing: the janitor ends it.

    Values that were bad or not worth going on are ``PRUNED`` for Optuna: its samplers learn from those, and leave
    failed ones aside.
    """
    from optuna.trial import TrialState

    study._storage.set_trial_user_attr(trial._trial_id, OUTCOME, outcome.as_attribute())
    if outcome.ended is Ended.COMPLETE:
        study.tell(trial.number, outcome.value)
    elif outcome.ended in _PRUNED or (outcome.ended is Ended.TIMEOUT and outcome.readings):
        study.tell(trial.number, state=TrialState.PRUNED)
    else:
        study.tell(trial.number, state=TrialState.FAIL)


def values_of(trial: FrozenTrial) -> dict[str, Value]:
    """Also of a trial that waits, whose values are set but not drawn yet."""
    return {**trial.system_attrs.get("fixed_params", {}), **trial.params}


def counts(trial: FrozenTrial) -> bool:
    outcome = outcome_of(trial)
    return outcome is None or outcome.ended not in _DO_NOT_COUNT


def stretches(trials: Iterable[FrozenTrial], gpus: int, now: float) -> list[Stretch]:
    """When commands ran, those that run now included."""
    found = []
    for trial in trials:
        if trial.datetime_start is None or (trial.state.is_finished() and outcome_of(trial) is None):
            continue
        start, outcome = _timestamp(trial.datetime_start), outcome_of(trial)
        seconds = outcome.seconds if outcome is not None else max(0.0, now - start)
        if math.isfinite(seconds) and (outcome is None or outcome.ended is not Ended.DUPLICATE):
            found.append(Stretch(start, seconds, gpus, outcome.energy_j if outcome is not None else None))
    return found


def _timestamp(naive: datetime) -> float:
    """Optuna's times are local and do not say so."""
    return naive.timestamp()

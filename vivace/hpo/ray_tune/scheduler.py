"""Ray's schedulers, from the first whole trial on: before that nobody knows how long a trial is.

What was reported until then is told to the scheduler when it is made. Runs of the confirmation are never ended, nor is
a trial at its last reading.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, MedianStoppingRule, TrialScheduler
from ray.tune.stopper import Stopper

from vivace.hpo.asked import PrunerName
from vivace.hpo.ledger import Part
from vivace.hpo.outcome import Ended
from vivace.hpo.pruning import KEPT, first_look, may_prune
from vivace.hpo.ray_tune.results import ENDED, FRESH, OWN, READING, VALUE

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

__all__ = ["FromTheFirstWholeTrial", "StopWhenAsked", "make_scheduler"]

_BRACKETS = 3  # of Hyperband: successive halving that begins early, later, and last


def make_scheduler(pruner: PrunerName, mode: str, length: int) -> TrialScheduler:
    """``length``: the readings of a whole trial."""
    named = {"time_attr": READING, "metric": VALUE, "mode": mode}
    if pruner is PrunerName.MEDIAN:
        return MedianStoppingRule(**named, grace_period=1, min_time_slice=math.inf)  # a command cannot be paused
    if pruner is PrunerName.HYPERBAND:
        brackets = min(_BRACKETS, length)
        return AsyncHyperBandScheduler(
            **named, max_t=length, grace_period=1, reduction_factor=KEPT, brackets=brackets, stop_last_trials=False
        )
    return AsyncHyperBandScheduler(
        **named, max_t=length, grace_period=first_look(length), reduction_factor=KEPT, stop_last_trials=False
    )


class FromTheFirstWholeTrial(FIFOScheduler):
    """``length``: known from the start in a study that is resumed."""

    def __init__(self, pruner: PrunerName, mode: str, length: int | None) -> None:
        super().__init__()
        self._pruner, self._mode = pruner, mode
        self._trials: list[Trial] = []
        self._results: list[tuple[Trial, dict[str, Any]]] = []
        self._length: int | None = None
        self._scheduler: TrialScheduler = FIFOScheduler()
        if length is not None:
            self._begin(None, length)

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        return True

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        if not _is_search(trial):
            return
        self._trials.append(trial)
        self._scheduler.on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        if not _is_search(trial) or not result.get(FRESH):
            return str(TrialScheduler.CONTINUE)
        if self._length is None:
            self._results.append((trial, result))
        if not may_prune(self._pruner, result[READING], self._length):
            return str(TrialScheduler.CONTINUE)
        return str(self._scheduler.on_trial_result(tune_controller, trial, result))

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        if self._length is None and _is_search(trial) and result.get(ENDED) == Ended.COMPLETE:
            self._begin(tune_controller, result[READING])
        self.on_trial_remove(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        self.on_trial_remove(tune_controller, trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """All that it reported is known already."""
        if self._length is not None and trial in self._trials:
            self._trials.remove(trial)
            self._scheduler.on_trial_remove(tune_controller, trial)

    def _begin(self, tune_controller: Any, length: int) -> None:
        self._length = length
        self._scheduler = make_scheduler(self._pruner, self._mode, length)
        for trial in self._trials:
            self._scheduler.on_trial_add(tune_controller, trial)
        for trial, result in self._results:
            self._scheduler.on_trial_result(tune_controller, trial, result)
        self._results.clear()

    def __reduce__(self) -> tuple[Any, ...]:  # Ray saves schedulers with the experiment; ours is made anew
        return (object, ())


class StopWhenAsked(Stopper):
    """Ends the experiment, also while its trials say nothing."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._stop.is_set()

    def __reduce__(self) -> tuple[Any, ...]:
        return (object, ())


def _is_search(trial: Trial) -> bool:
    return bool(trial.config[OWN]["part"] == Part.SEARCH)

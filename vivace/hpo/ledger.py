"""``Ledger``: which trial a worker runs next, decided by one worker at a time under the study's lock.

The lock makes the budget global (what others run is counted), keeps parallel workers from asking for the same values,
and lets the janitor work first. A study has two parts, each a study of Optuna in the same storage: the search, and the
confirmation, which runs the best configuration and the user's own again over seeds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.hpo.asked import Asked, SamplerName
from vivace.hpo.budget import Spent, spent_of
from vivace.hpo.confirming import CONFIRMATION, missing_runs
from vivace.hpo.engine import distributions, make_sampler, open_study
from vivace.hpo.leases import Leases
from vivace.hpo.locking import FileLock
from vivace.hpo.outcome import (
    FAILURES,
    RETRY_OF,
    SEED,
    WORKER,
    Ended,
    Outcome,
    close,
    counts,
    outcome_of,
    stretches,
    values_of,
)
from vivace.hpo.recovery import killed_outcome, queue_successors, recover
from vivace.hpo.space import Value
from vivace.hpo.storage import open_storage

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

__all__ = ["Claimed", "Ledger", "Over", "Part", "Waiting"]

_LOCK = "study.lock"
_LOCK_GRACE_S = 120.0  # of a holder on another machine: asking a Gaussian process may take it a while
FIRST_FAILURES = 5
"""So many failures and nothing else at the beginning: the command itself is wrong."""
_SHUFFLE = 1  # tells the grid's order from other draws of one seed
_LARGEST_FINITE = 100_000


class Part(StrEnum):
    SEARCH = "search"
    CONFIRMATION = "confirmation"


@dataclass(frozen=True)
class Claimed:
    """A trial that this worker is to run. ``seed``: of a run of the confirmation.

    ``number`` is that of the first trial with these values: a script that saves in ``{folder}`` goes on from there when
    its worker was stopped.
    """

    part: Part
    study: Study
    trial: Trial
    number: int
    values: dict[str, Value]
    seed: int | None = None


@dataclass(frozen=True)
class Waiting:
    """Nothing to begin now, but trials of others may come back."""


@dataclass(frozen=True)
class Over:
    """Nothing is left to do. ``failed``: why the study was stopped early."""

    failed: str = ""


class Ledger:
    def __init__(self, folder: Path, asked: Asked) -> None:
        self.folder, self.asked = folder, asked
        self.leases = Leases(folder)
        self._lock = FileLock(folder / _LOCK, _LOCK_GRACE_S)
        self._storage = open_storage(folder, asked.storage)
        self._distributions = distributions(asked.space)
        self.search = open_study(self._storage, asked.study_name, asked)
        self.confirmation = open_study(self._storage, f"{asked.study_name}{CONFIRMATION}", asked)

    def begin(self) -> None:
        """Queue what is known from the start: the user's own values first, or the points of a grid."""
        with self._lock.held():
            known = [_key(values_of(trial)) for trial in self.search.get_trials(deepcopy=False)]
            for values in self._first_values():
                if _key(values) not in known:
                    self.search.enqueue_trial(values)

    def claim(self, worker: str) -> Claimed | Waiting | Over:
        from optuna.trial import TrialState

        self.leases.refresh()
        with self._lock.held():
            recover(self.search, self.leases)
            recover(self.confirmation, self.leases)
            if (why := self.failed()) is not None:
                return Over(why)
            trials = self.search.get_trials(deepcopy=False)
            if self._may_begin(trials):
                return self._claim_search(worker, trials)
            if any(trial.state is TrialState.RUNNING for trial in trials):
                return Waiting()
            return self._claim_confirmation(worker)

    def claimed(self, part: Part, number: int) -> Claimed:
        """A trial that was claimed before, by a process that lets this one run it."""
        from optuna.trial import Trial

        study = self.search if part is Part.SEARCH else self.confirmation
        study.sampler = make_sampler(SamplerName.RANDOM, self.asked.seed, number)  # nothing is left to draw
        trial = Trial(study, _frozen(study, number)._trial_id)
        return self._as_claimed(part, study, trial)

    def outcome_of_killed(self, claimed: Claimed) -> Outcome:
        """Of a trial whose process was killed while this worker lives on."""
        trial = _stored(claimed)
        start = trial.datetime_start.timestamp() if trial.datetime_start is not None else time.time()
        return killed_outcome(trial, max(0.0, time.time() - start))

    def close(self, claimed: Claimed, outcome: Outcome) -> bool:
        """Whether the trial was still this worker's: one that was silent too long has lost it to another."""
        with self._lock.held():
            trial = _stored(claimed)
            if trial.state.is_finished():
                return False
            close(claimed.study, trial, outcome)
            queue_successors(claimed.study)
        return True

    def is_closed(self, claimed: Claimed) -> bool:
        """By whoever decides about it: the command need not go on."""
        return bool(_stored(claimed).state.is_finished())

    def trials(self, part: Part) -> list[FrozenTrial]:
        study = self.search if part is Part.SEARCH else self.confirmation
        return study.get_trials(deepcopy=False)

    def spent(self, now: float | None = None) -> Spent:
        """By all commands so far, those that run now included."""
        every = [*self.trials(Part.SEARCH), *self.trials(Part.CONFIRMATION)]
        return spent_of(stretches(every, self.asked.gpus_per_trial, time.time() if now is None else now))

    def is_out_of_budget(self, part: Part) -> bool:
        """Also for a command that runs now. The search leaves what the confirmation needs, half of it at most."""
        budget = self.asked.budget
        if budget is None:
            return False
        kept_back = self.reserve() if part is Part.SEARCH else 0.0
        return self.spent().of(budget.unit) + kept_back >= budget.amount

    def best(self) -> FrozenTrial | None:
        from optuna.trial import TrialState

        done = [trial for trial in self.trials(Part.SEARCH) if trial.state is TrialState.COMPLETE]
        if not done:
            return None
        sign = 1 if self.asked.parsed_goal.direction == "min" else -1
        return min(done, key=lambda trial: (sign * (trial.value or 0.0), trial.number))

    def is_complete(self) -> bool:
        """Whether all that was asked is done, or cannot be done any more."""
        search, best = self.trials(Part.SEARCH), self.best()
        if any(trial.state.name == "RUNNING" for trial in search) or self._may_begin(search) or not search:
            return False
        if best is None or not self._is_confirmed_by_runs(best) or self.is_out_of_budget(Part.CONFIRMATION):
            return True
        runs = self.trials(Part.CONFIRMATION)
        return not missing_runs(self.asked, best.params, runs) and all(run.state.is_finished() for run in runs)

    def failed(self) -> str | None:
        """Why the study was stopped before its end: the command itself seems to be wrong."""
        trials = self.trials(Part.SEARCH)[self.asked.forgiven :]
        ended = [outcome for trial in trials if (outcome := outcome_of(trial)) and counts(trial)]
        failures = [outcome for outcome in ended if outcome.ended in FAILURES]
        if len(failures) < FIRST_FAILURES or len(failures) < len(ended):
            return None
        return f"the first {len(failures)} trials all failed; the last one: {failures[-1].reason}"

    def _is_confirmed_by_runs(self, best: FrozenTrial) -> bool:
        """Not if it was asked not to be, or where the best are the user's own values."""
        return self.asked.confirm_seeds > 0 and best.params != self.asked.baseline

    def _first_values(self) -> Sequence[dict[str, Value]]:
        first = [self.asked.defaults] if self.asked.defaults is not None else []
        if self.asked.sampler is not SamplerName.GRID:
            return first
        points = list(self.asked.space.grid())
        random.Random(f"{self.asked.seed} {_SHUFFLE}").shuffle(points)
        return [*first, *(point for point in points if point not in first)][: self.asked.trials]

    def _may_begin(self, trials: Sequence[FrozenTrial]) -> bool:
        """A queued trial, or a new one within the number that was asked for; and within the budget."""
        from optuna.trial import TrialState

        if self.is_out_of_budget(Part.SEARCH):
            return False
        if any(trial.state is TrialState.WAITING for trial in trials):
            return True
        counted = sum(counts(trial) for trial in trials)
        if self.asked.sampler is SamplerName.GRID or counted >= self.asked.trials:
            return False
        size = self.asked.space.size
        return size is None or counted < size

    def reserve(self) -> float:
        """What the confirmation is going to take, by the longest whole trial so far, in the budget's unit."""
        budget = self.asked.budget
        if budget is None or not self.asked.confirm_seeds:
            return 0.0
        found = (outcome_of(trial) for trial in self.trials(Part.SEARCH))
        whole = [outcome for outcome in found if outcome is not None and outcome.ended is Ended.COMPLETE]
        runs = 2 * self.asked.confirm_seeds
        one = max((outcome.seconds for outcome in whole), default=0.0)
        per_unit = {
            "seconds": one * -(-runs // self.asked.workers),
            "GPU-seconds": one * runs * self.asked.gpus_per_trial,
            "joules": runs * max((outcome.energy_j or 0.0 for outcome in whole), default=0.0),
        }
        return min(0.5 * budget.amount, per_unit[budget.unit])

    def _claim_search(self, worker: str, trials: Sequence[FrozenTrial]) -> Claimed:
        trial = self._ask(self.search, len(trials))
        twin = self._twin(trial, trials)
        if twin is not None:  # samplers do that in finite spaces, and at the edges of others: take what was not tried
            stored = _frozen(self.search, trial.number)
            close(self.search, stored, Outcome(Ended.DUPLICATE, reason=f"the same values as trial {twin}"))
            self.search.enqueue_trial(self._untried(trials))
            trial = self._ask(self.search, len(trials) + 2)
        return self._signed(Part.SEARCH, self.search, trial, worker)

    def _ask(self, study: Study, number: int) -> Trial:
        study.sampler = make_sampler(self.asked.sampler, self.asked.seed, number)
        return study.ask(self._distributions)

    def _twin(self, trial: Trial, trials: Sequence[FrozenTrial]) -> int | None:
        """The number of a trial with the same values; queued values are as they were meant to be."""
        if "fixed_params" in _frozen(self.search, trial.number).system_attrs:
            return None
        key = _key(trial.params)
        return next((one.number for one in trials if counts(one) and _key(values_of(one)) == key), None)

    def _untried(self, trials: Sequence[FrozenTrial]) -> dict[str, Value]:
        tried = {_key(values_of(trial)) for trial in trials if counts(trial)}
        space, draw = self.asked.space, random.Random(f"{self.asked.seed} {len(trials)}")
        if space.size is not None and space.size <= _LARGEST_FINITE:
            return draw.choice([values for values in space.every() if _key(values) not in tried])
        while True:  # few of so many are tried: a random one is new
            values: dict[str, Value] = {parameter.name: parameter.draw(draw) for parameter in space.parameters}
            if _key(values) not in tried:
                return values

    def _claim_confirmation(self, worker: str) -> Claimed | Waiting | Over:
        from optuna.trial import TrialState

        best, trials = self.best(), self.trials(Part.CONFIRMATION)
        if best is None or not self._is_confirmed_by_runs(best) or self.is_out_of_budget(Part.CONFIRMATION):
            return Over()
        for values, attributes in missing_runs(self.asked, best.params, trials):
            self.confirmation.enqueue_trial(values, user_attrs=attributes)
        trials = self.trials(Part.CONFIRMATION)
        if any(trial.state is TrialState.WAITING for trial in trials):
            trial = self._ask(self.confirmation, len(trials))
            return self._signed(Part.CONFIRMATION, self.confirmation, trial, worker)
        return Waiting() if any(trial.state is TrialState.RUNNING for trial in trials) else Over()

    def _signed(self, part: Part, study: Study, trial: Trial, worker: str) -> Claimed:
        trial.set_user_attr(WORKER, worker)
        return self._as_claimed(part, study, trial)

    def _as_claimed(self, part: Part, study: Study, trial: Trial) -> Claimed:
        return Claimed(part, study, trial, _first_number(study, trial), dict(trial.params), trial.user_attrs.get(SEED))


def _first_number(study: Study, trial: Trial) -> int:
    trials, number = study.get_trials(deepcopy=False), trial.number
    while RETRY_OF in trials[number].user_attrs:
        number = trials[number].user_attrs[RETRY_OF]
    return number


def _stored(claimed: Claimed) -> FrozenTrial:
    return _frozen(claimed.study, claimed.trial.number)


def _frozen(study: Study, number: int) -> FrozenTrial:
    return study.get_trials(deepcopy=False)[number]


def _key(values: dict[str, Value]) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted(values.items()))

"""The janitor: a trial whose worker is gone is given back and queued again. It is never lost, and never counted twice.

Every step can be cut short by a kill and is done again by the next janitor: the outcome is noted first, then the trial
is closed, then its successor is queued; a closed trial without a successor gets one. Called with the study's lock held.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from vivace.hpo.leases import Leases, end_orphans
from vivace.hpo.outcome import ARM, ATTEMPT, RETRY_OF, SEED, WORKER, Ended, Outcome, close, outcome_of, values_of

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

__all__ = ["MOST_ATTEMPTS", "killed_outcome", "queue_successors", "recover"]

MOST_ATTEMPTS = 3
"""Workers that may be killed over one configuration: it may be the one that uses up the machine's memory."""


def recover(study: Study, leases: Leases) -> int:
    """Close the trials of workers that are gone, and queue their successors; how many were given back."""
    from optuna.trial import TrialState

    given_back = 0
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        worker = trial.user_attrs.get(WORKER)
        # The lock is ours. One that asked for a trial and did not sign it was killed while it held the lock.
        if worker is not None and not leases.is_gone(worker):
            continue
        if worker is not None:
            end_orphans(worker)
        outcome = _outcome(trial, worker, leases)
        given_back += outcome.ended is Ended.GIVEN_BACK
        close(study, trial, outcome)
        if worker is not None:
            leases.forget(worker)
    queue_successors(study)
    return given_back


def _outcome(trial: FrozenTrial, worker: str | None, leases: Leases) -> Outcome:
    """What the worker noted, if it got so far."""
    known = outcome_of(trial)
    if known is not None:
        return known
    if worker is None:  # it never ran, and its end tells nothing about its values
        return Outcome(Ended.GIVEN_BACK, reason="its worker was killed while it asked for values")
    start = trial.datetime_start.timestamp() if trial.datetime_start is not None else time.time()
    return killed_outcome(trial, max(0.0, (leases.last_sign(worker) or start) - start))


def killed_outcome(trial: FrozenTrial, seconds: float) -> Outcome:
    """Of a trial whose worker was killed after so long: given back, or given up."""
    attempt = trial.user_attrs.get(ATTEMPT, 0) + 1
    if attempt >= MOST_ATTEMPTS:
        return Outcome(Ended.WORKERS_KILLED, reason=f"{attempt} workers were killed while they ran it", seconds=seconds)
    return Outcome(Ended.GIVEN_BACK, reason="its worker was killed", seconds=seconds, killed=True)


def queue_successors(study: Study) -> None:
    trials = study.get_trials(deepcopy=False)
    replaced = {trial.user_attrs[RETRY_OF] for trial in trials if RETRY_OF in trial.user_attrs}
    for trial in trials:
        outcome = outcome_of(trial)
        if outcome is None or outcome.ended is not Ended.GIVEN_BACK or not trial.state.is_finished():
            continue
        if trial.number not in replaced:
            kept = {key: trial.user_attrs[key] for key in (ARM, SEED) if key in trial.user_attrs}
            attempt = trial.user_attrs.get(ATTEMPT, 0) + outcome.killed
            study.enqueue_trial(values_of(trial), user_attrs={**kept, RETRY_OF: trial.number, ATTEMPT: attempt})

"""Ray asks for the values of the next trial, and tells how trials end: both go to the study's ledger."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from vivace.hpo.leases import end_orphans
from vivace.hpo.ledger import Claimed, Ledger, Over, Waiting
from vivace.hpo.outcome import Ended, Outcome
from vivace.hpo.patience import patiently
from vivace.hpo.ray_tune.results import OWN, READING, SECONDS, VALUE, mode_of, outcome_in
from vivace.hpo.ray_tune.trial import own_part

__all__ = ["LedgerSearcher", "lease_of"]


def lease_of(worker: str, claimed: Claimed) -> str:
    """In the environment of the trial's processes: of the driver's lease, and of this trial alone."""
    return f"{worker}/{claimed.part}-{claimed.trial.number}"


class LedgerSearcher(Searcher):
    """``slots``: trials for one machine. ``stop``: once it is set, what ends is given back. ``say``: a line for each
    trial that has ended."""

    def __init__(
        self, ledger: Ledger, worker: str, slots: int, stop: threading.Event, say: Callable[[str], None]
    ) -> None:
        super().__init__(metric=VALUE, mode=mode_of(ledger.asked))
        self._ledger, self._worker, self._slots, self._stop, self._say = ledger, worker, slots, stop, say
        self._claimed: dict[str, Claimed] = {}
        self._threads = os.environ.get("OMP_NUM_THREADS")

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._stop.is_set():
            return str(Searcher.FINISHED)
        claimed = patiently(self._ledger.claim, self._worker)
        if isinstance(claimed, Over):
            return str(Searcher.FINISHED)
        if isinstance(claimed, Waiting):
            return None
        self._claimed[trial_id] = claimed
        folder: Path = self._ledger.folder
        own = own_part(folder, claimed, lease_of(self._worker, claimed), self._threads, self._slots)
        return {**claimed.values, OWN: own}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        claimed = self._claimed.pop(trial_id, None)
        if claimed is None:
            return
        outcome = outcome_in(result)
        if error and outcome is None:  # its process was killed
            end_orphans(lease_of(self._worker, claimed))
            outcome = patiently(self._ledger.outcome_of_killed, claimed)
        elif outcome is None and self._stop.is_set():
            outcome = Outcome(Ended.GIVEN_BACK, reason="its worker was stopped")
        elif outcome is None:
            seen = result or {}
            outcome = Outcome(Ended.PRUNED, seconds=seen.get(SECONDS, 0.0), readings=seen.get(READING, 0))
        self._close(claimed, outcome)

    def give_back_all(self) -> None:
        """What still ran when the experiment ended."""
        for trial_id in list(self._claimed):
            self._close(self._claimed.pop(trial_id), Outcome(Ended.GIVEN_BACK, reason="its worker was stopped"))

    def _close(self, claimed: Claimed, outcome: Outcome) -> None:
        if patiently(self._ledger.close, claimed, outcome):
            value = f" {outcome.value:g}" if outcome.value is not None else ""
            self._say(f"{claimed.part} {claimed.trial.number}: {outcome.ended}{value}")

    # Ray saves its own state between results. Ours is the ledger, so there is nothing to save.

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str) -> None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return (object, ())

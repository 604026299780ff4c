"""One trial in a process of Ray's: the same watched command as with Optuna, told to Ray reading by reading.

Ray calls ``step`` for the next result and ``cleanup`` to end the trial. The command is watched by a thread, which alone
uses the study's storage in this process.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from ray import tune

from vivace.hpo.asked import read_asked
from vivace.hpo.ledger import Claimed, Ledger, Part
from vivace.hpo.outcome import Ended, Outcome
from vivace.hpo.patience import patiently
from vivace.hpo.ray_tune.results import FRESH, OUTCOME, OWN, READING, SECONDS, VALUE
from vivace.hpo.trial_run import run_trial

__all__ = ["RayTrial", "own_part"]

_SILENT_S = 1.0  # after so long without a reading, Ray gets a result without one
_THREADS = "OMP_NUM_THREADS"


def own_part(folder: Path, claimed: Claimed, lease: str, threads: str | None, slots: int) -> dict[str, Any]:
    """``threads``: the user's own setting. ``slots``: trials that share a machine, and so its cores."""
    return {
        "folder": str(folder.absolute()), "part": str(claimed.part), "number": claimed.trial.number, "lease": lease,
        "threads": threads, "slots": slots,
    }  # fmt: skip


class RayTrial(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self._own = config[OWN]
        self._told: queue.Queue[tuple[int, float] | Outcome] = queue.Queue()
        self._stop = threading.Event()
        self._began = time.monotonic()
        self._last: dict[str, Any] = {READING: 0, SECONDS: 0.0}
        self._thread = threading.Thread(target=self._run, name="vivace-trial", daemon=True)
        self._thread.start()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """The next trial, in the same process: to start one takes Ray seconds."""
        self.cleanup()
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        try:
            told = self._told.get(timeout=_SILENT_S)
        except queue.Empty:
            return {**self._last, FRESH: False}
        if isinstance(told, Outcome):
            return {**self._last, FRESH: False, OUTCOME: told.as_attribute(), "done": True}
        number, value = told
        self._last = {READING: number, VALUE: value, SECONDS: time.monotonic() - self._began}
        return {**self._last, FRESH: True}

    def cleanup(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            outcome = self._outcome()
        except Exception as error:  # or the driver would wait for ever
            outcome = Outcome(Ended.CRASHED, reason=f"vivace itself failed: {type(error).__name__}: {error}")
        self._told.put(outcome)

    def _outcome(self) -> Outcome:
        folder = Path(self._own["folder"])
        asked = read_asked(folder)
        ledger = patiently(Ledger, folder, asked)
        claimed = ledger.claimed(Part(self._own["part"]), self._own["number"])
        # Ray sets one thread for each of its processes, and the command would inherit that.
        threads = self._own["threads"] or str(max(1, len(psutil.Process().cpu_affinity() or [0]) // self._own["slots"]))
        os.environ[_THREADS] = threads

        def tell(number: int, value: float) -> bool:
            claimed.trial.report(value, number)
            self._told.put((number, value))
            return False

        def is_over() -> bool:
            """Ray keeps this process for the next trial, and does not tell that it has ended this one."""
            return ledger.is_closed(claimed)

        return run_trial(ledger, claimed, self._own["lease"], self._stop, judge=tell, is_over=is_over)

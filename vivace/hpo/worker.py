"""A worker: asks the ledger for a trial, runs it, closes it, and goes on until nothing is left.

Started by ``vivace hpo`` itself, by the tasks of a Slurm array, or by hand on any machine that sees the study's folder
(``vivace hpo --join FOLDER``). Workers may come and go at any time.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from vivace.errors import ExitCode
from vivace.hpo.asked import EngineName, read_asked
from vivace.hpo.identity import me
from vivace.hpo.leases import held_lease
from vivace.hpo.ledger import Claimed, Ledger, Over, Waiting
from vivace.hpo.outcome import Ended, Outcome
from vivace.hpo.patience import patiently
from vivace.hpo.ray_tune.driver import drive
from vivace.hpo.trial_run import run_trial
from vivace.preemption import EXIT_INTERRUPTED

__all__ = ["work"]

_PAUSE_S = 1.0
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def work(folder: Path, say: Callable[[str], None] = lambda _line: None) -> int:
    """Work for the study in ``folder`` until it is over; the exit code."""
    asked = read_asked(folder)
    ledger = patiently(Ledger, folder, asked)
    with held_lease(folder) as worker, _asked_to_stop() as stop:
        if asked.engine is EngineName.RAY:
            drive(ledger, worker, stop, say)
            if not stop.is_set():
                return ExitCode.DONE
        while not stop.is_set():
            claimed = patiently(ledger.claim, worker)
            if isinstance(claimed, Over):
                return ExitCode.DONE
            if isinstance(claimed, Waiting):
                stop.wait(_PAUSE_S)
                continue
            outcome = run_trial(ledger, claimed, worker, stop)
            if patiently(ledger.close, claimed, outcome):
                say(_line(claimed, outcome))
            if outcome.ended is Ended.GIVEN_BACK:
                break
    # A job that Slurm warned of its time limit asks to be requeued, and goes on with other trials.
    return EXIT_INTERRUPTED if me().job is not None and stop.is_warning else ExitCode.INTERRUPTED


def _line(claimed: Claimed, outcome: Outcome) -> str:
    value = f" {outcome.value:g}" if outcome.value is not None else ""
    return f"{claimed.part} {claimed.trial.number}: {outcome.ended}{value}"


class _Stop(threading.Event):
    """``is_warning``: by the signal that vivace's job scripts pass on before the time limit, or by none at all (the
    command itself asked to be started again)."""

    is_warning = True


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[_Stop]:
    """Signals that ask for an end are noted: the trial is given back before the process leaves."""
    stop = _Stop()

    def note(number: int, _frame: FrameType | None) -> None:
        stop.is_warning = number == signal.SIGUSR1
        stop.set()

    previous = {number: signal.signal(number, note) for number in (*_STOPS, signal.SIGUSR1)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

"""Leads a study from its start, or from where it stopped, to its record: workers here or in Slurm, and what to show."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from vivace.errors import UserError
from vivace.hpo.asked import Asked, EngineName, write_asked
from vivace.hpo.ledger import Ledger, Part
from vivace.hpo.patience import patiently
from vivace.hpo.slurm_workers import Array, send
from vivace.hpo.summary import CSV, RECORD, summarize, write_csv
from vivace.hpo.team import Team
from vivace.records.hpo import Hpo

__all__ = ["Interrupted", "finish", "lead", "lead_in_slurm"]

_LOOK_S = 0.5

Show = Callable[[Hpo], None]
Say = Callable[[str], None]


class Interrupted(Exception):
    """By Ctrl-C or a signal. All that has ended is kept."""

    def __init__(self, record: Hpo) -> None:
        super().__init__("interrupted")
        self.record = record


def lead(folder: Path, asked: Asked, gpus: Sequence[str], cores: int, show: Show, say: Say) -> Hpo:
    """With workers on this machine."""
    ledger = _begin(folder, asked)
    team = Team(folder, asked, gpus, cores)
    try:
        with _signals_as_ctrl_c(), team.at_work():
            while team.is_at_work:
                _look(ledger, show)
                for line in team.look():
                    say(line)
            show(patiently(summarize, ledger))
    except KeyboardInterrupt:
        raise Interrupted(finish(ledger, folder, "interrupted")) from None
    return _finished(ledger, folder)


def lead_in_slurm(folder: Path, asked: Asked, show: Show, say: Say) -> Hpo:
    """With workers in a Slurm array, which go on when this process is stopped."""
    assert asked.slurm is not None
    ledger = _begin(folder, asked)
    array = Array(asked.jobs)
    if ledger.is_complete() and asked.jobs:
        return _finished(ledger, folder)
    if not asked.jobs or not array.is_active():
        in_ray = asked.engine is EngineName.RAY
        job = send(folder, asked.name, None if in_ray else asked.workers, asked.slurm)
        asked = replace(ledger.asked, jobs=(*asked.jobs, job))
        write_asked(folder, asked)
        array = Array(asked.jobs)
        what = "Ray is" if in_ray else f"{asked.workers} workers are"
        say(f"{what} in the queue: job {job} (vivace queue {job}, vivace cancel {job})")
    try:
        with _signals_as_ctrl_c():
            while not ledger.is_complete() and ledger.failed() is None and array.is_active():
                _look(ledger, show)
            show(patiently(summarize, ledger))
    except KeyboardInterrupt:
        jobs = ", ".join(asked.jobs)
        raise Interrupted(finish(ledger, folder, f"the workers of job {jobs} go on without this window")) from None
    return _finished(ledger, folder)


def _look(ledger: Ledger, show: Show) -> None:
    """And a pause, ten times as long as the look took: large studies are looked at less often."""
    began = time.monotonic()
    show(patiently(summarize, ledger))
    time.sleep(max(_LOOK_S, 10 * (time.monotonic() - began)))


def _begin(folder: Path, asked: Asked) -> Ledger:
    """A study that was stopped because all failed was resumed on purpose: those failures no longer count."""
    ledger = patiently(Ledger, folder, asked)
    if ledger.failed() is not None:
        asked = replace(asked, forgiven=len(ledger.trials(Part.SEARCH)))
        write_asked(folder, asked)
        ledger = patiently(Ledger, folder, asked)
    patiently(ledger.begin)
    return ledger


def finish(ledger: Ledger, folder: Path, ended: str = "") -> Hpo:
    """Write what is known now: the record and the table of trials."""
    record = patiently(summarize, ledger, ended, importance=True)
    patiently(record.save, folder / RECORD)
    patiently(write_csv, record, folder / CSV)
    return record


def _finished(ledger: Ledger, folder: Path) -> Hpo:
    failed = ledger.failed()
    if failed is None and not ledger.is_complete():
        failed = "its workers ended before the study did"
    record = finish(ledger, folder, failed or "")
    if failed is not None and record.best is None:
        raise UserError(failed, hint=f"logs are in {folder / 'trials'}; then vivace hpo --resume {folder}")
    return record


@contextlib.contextmanager
def _signals_as_ctrl_c() -> Iterator[None]:
    """So that workers are ended and the record is written also when a terminal is closed."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

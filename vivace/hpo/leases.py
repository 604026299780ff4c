"""Leases: a file for each worker of a study, with who it is and, by its time, when it last showed a sign of life.

Optuna has no heartbeat for its journal: a trial whose worker was killed would run for ever. The janitor
(``recovery``) asks here whether a worker is gone: at once where its machine or Slurm can tell, else when its lease has
not changed for ``SILENT_S`` as seen from here, whatever the clocks of the machines say.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from vivace.errors import UserError
from vivace.files import write_text_atomically
from vivace.hpo.identity import Identity, SlurmJob, me
from vivace.hpo.patience import patiently
from vivace.launch.queue import my_jobs
from vivace.launch.slurm import slurm_is_here

__all__ = ["LEASE_VARIABLE", "SILENT_S", "Leases", "end_orphans", "held_lease"]

LEASE_VARIABLE = "VIVACE_HPO_LEASE"
"""In the environment of every process of a trial: what a killed worker leaves behind is found by it. A worker that runs
several trials at once adds ``/`` and a name for each."""
SILENT_S = 120.0
_BEAT_S = 10.0
_ASK_SLURM_S = 20.0
_FOLDER = "workers"


@contextlib.contextmanager
def held_lease(folder: Path) -> Iterator[str]:
    """This process works for the study: the name of its lease."""
    path = _path(folder, me().token)
    patiently(path.parent.mkdir, exist_ok=True)
    patiently(write_text_atomically, path, me().to_json())
    over = threading.Event()

    def beat() -> None:
        while not over.wait(_BEAT_S):
            with contextlib.suppress(OSError):
                os.utime(path)

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield me().token
    finally:
        over.set()
        with contextlib.suppress(OSError):
            path.unlink()


class Leases:
    """As one process sees them over time. ``refresh`` may take seconds, and is called before a lock is taken."""

    def __init__(self, folder: Path, jobs: Callable[[], dict[str, int] | None] | None = None) -> None:
        self._folder = folder
        self._ask_jobs = jobs or _jobs_and_restarts
        self._jobs: dict[str, int] | None = None
        self._asked_at = -_ASK_SLURM_S
        self._seen: dict[str, tuple[float, float]] = {}

    def refresh(self) -> None:
        """Ask Slurm which jobs there are, if some worker belongs to one."""
        if time.monotonic() - self._asked_at < _ASK_SLURM_S:
            return
        self._asked_at = time.monotonic()
        mine = me().job
        others = [identity.job for identity in self.workers().values() if identity.job is not None]
        self._jobs = self._ask_jobs() if any(job != mine for job in others) else None

    def workers(self) -> dict[str, Identity]:
        found = {}
        for path in self._folder.glob(f"{_FOLDER}/*.json"):
            with contextlib.suppress(OSError):
                if (identity := Identity.from_json(path.read_text())) is not None:
                    found[path.stem] = identity
        return found

    def is_gone(self, name: str) -> bool:
        path = _path(self._folder, name)
        try:
            changed, text = path.stat().st_mtime, path.read_text()
        except FileNotFoundError:
            return True  # a worker removes its lease when it ends
        except OSError:
            return False
        identity = Identity.from_json(text)
        if identity is not None:
            if (gone := identity.is_gone()) is not None:
                return gone
            if identity.job is not None and self._jobs is not None:
                return _job_is_gone(identity.job, self._jobs)
        before, since = self._seen.get(name, (None, 0.0))
        if before != changed:
            self._seen[name] = (changed, time.monotonic())
            return False
        return time.monotonic() - since > SILENT_S

    def last_sign(self, name: str) -> float | None:
        """When (``time.time()``) the worker last showed a sign of life."""
        try:
            return _path(self._folder, name).stat().st_mtime
        except OSError:
            return None

    def forget(self, name: str) -> None:
        with contextlib.suppress(OSError):
            _path(self._folder, name).unlink()


def end_orphans(name: str) -> int:
    """End what a killed worker's trial left running on this machine; how many processes it was."""
    ended = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            lease = process.environ().get(LEASE_VARIABLE, "")
            if process.pid != os.getpid() and (lease == name or lease.startswith(f"{name}/")):
                process.kill()
                ended += 1
    return ended


def _path(folder: Path, name: str) -> Path:
    return folder / _FOLDER / f"{Path(name).name}.json"


def _jobs_and_restarts() -> dict[str, int] | None:
    """The user's jobs in the queue and how often each was requeued; None: Slurm does not tell."""
    if not slurm_is_here():
        return None
    try:
        return {job.job_id: job.restarts for job in my_jobs() if job.state != "PENDING"}
    except UserError:
        return None


def _job_is_gone(job: SlurmJob, running: dict[str, int]) -> bool:
    """
    >>> _job_is_gone(SlurmJob("17_3", 0), {"17_3": 1}), _job_is_gone(SlurmJob("17_3", 1), {"17_3": 1})
    (True, False)
    """
    return job.id not in running or running[job.id] > job.restart

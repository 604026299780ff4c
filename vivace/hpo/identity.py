"""``Identity``: who holds a lock or a trial, and whether that process still runs.

On its own machine a process is looked up by its number and its start; elsewhere a Slurm job can be asked for. Where
neither tells, the answer is that nobody knows, and the caller waits for signs of life.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import psutil

__all__ = ["Identity", "SlurmJob", "me"]


@dataclass(frozen=True)
class SlurmJob:
    """``id``: what a person types, ``17`` or ``17_3``. ``restart``: how often Slurm had requeued it."""

    id: str
    restart: int


@dataclass(frozen=True)
class Identity:
    host: str
    pid: int
    started: float
    """When the process began: a later one may have the same number."""
    token: str
    """Of this process alone."""
    job: SlurmJob | None = None

    def is_gone(self) -> bool | None:
        """None: it cannot be told from here."""
        if self.host != socket.gethostname():
            return None
        try:
            process = psutil.Process(self.pid)
            return abs(process.create_time() - self.started) > 1.0 or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
        except psutil.Error:
            return None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Identity | None:
        """None: half written, or not by us."""
        try:
            data = json.loads(text)
            job = data["job"]
            return cls(
                str(data["host"]), int(data["pid"]), float(data["started"]), str(data["token"]),
                SlurmJob(str(job["id"]), int(job["restart"])) if job else None,
            )  # fmt: skip
        except (ValueError, KeyError, TypeError):
            return None


@functools.cache
def _me(pid: int) -> Identity:
    return Identity(
        socket.gethostname(), pid, psutil.Process(pid).create_time(), uuid.uuid4().hex, job_here(os.environ)
    )


def me() -> Identity:
    """Of this process, also after a fork."""
    return _me(os.getpid())


def job_here(environment: Mapping[str, str]) -> SlurmJob | None:
    """
    >>> job_here({"SLURM_JOB_ID": "18", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"})
    SlurmJob(id='17_3', restart=0)
    """
    job_id = environment.get("SLURM_JOB_ID", "")
    if not job_id.isdigit():
        return None
    array, task = environment.get("SLURM_ARRAY_JOB_ID", ""), environment.get("SLURM_ARRAY_TASK_ID", "")
    restart = environment.get("SLURM_RESTART_COUNT", "0")
    whole = f"{array}_{task}" if array.isdigit() and task.isdigit() else job_id
    return SlurmJob(whole, int(restart) if restart.isdigit() else 0)

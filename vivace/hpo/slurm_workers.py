"""Workers as the tasks of a Slurm array: sent by ``vivace submit`` with whatever options it takes.

Each task is one worker, and the command of a trial starts its own ranks (``srun``, ``torchrun``) in that task's
allocation. Workers that reach their time limit give their trial back and are requeued; the study goes on meanwhile.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from vivace.errors import UserError
from vivace.hpo.team import join_command
from vivace.launch.queue import matching, my_jobs

__all__ = ["Array", "send"]

_ASK_S = 15.0
_OURS = (
    "--array", "--once", "--json", "--output", "-o", "--follow", "-f", "--commands", "--dry-run", "--launcher",
    "--with", "--name",
)  # fmt: skip


def send(folder: Path, name: str, tasks: int | None, slurm: str) -> str:
    """Send the workers, so many tasks of an array or (None) one job; its id. ``submit``'s stderr is for the user."""
    words = _words(slurm)
    array = ["--array", f"0-{tasks - 1}"] if tasks is not None else []
    command = [
        sys.executable, "-m", "vivace", "submit", *words, *array, "--once", "--json",
        "--output", str(folder.absolute() / "jobs"), "--name", name, "--", *join_command(folder),
    ]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    try:
        (record,) = json.loads(done.stdout)
        return str(record["job_id"])
    except (ValueError, KeyError, TypeError):
        raise UserError("no workers were sent", hint="--slurm takes options of: vivace submit --help") from None


def _words(slurm: str) -> Sequence[str]:
    try:
        words = shlex.split(slurm)
    except ValueError as error:
        raise UserError(f"--slurm {slurm!r} is not a list of options: {str(error).lower()}") from None
    if ours := next((word for word in words if word.partition("=")[0] in _OURS), None):
        raise UserError(f"--slurm: {ours} is set by vivace hpo itself", hint="leave it out")
    return words


class Array:
    """Jobs that were sent for a study, asked about every few seconds."""

    def __init__(self, jobs: Sequence[str]) -> None:
        self._jobs = jobs
        self._asked_at = -_ASK_S
        self._active = True

    def is_active(self) -> bool:
        """Whether a task of them waits or runs; the last known answer while Slurm does not answer."""
        if time.monotonic() - self._asked_at >= _ASK_S:
            self._asked_at = time.monotonic()
            try:
                jobs = my_jobs()
            except UserError:
                return self._active
            self._active = any(matching(jobs, job) for job in self._jobs)
        return self._active

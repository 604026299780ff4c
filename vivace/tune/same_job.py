"""Is it still the same job? A tune or a search that goes on (``--resume``) compares with what it measured before.

Another script, another machine or another working folder would set old runs beside new ones that they cannot be
compared with. Called by ``tune`` and ``find`` when they begin and when they go on.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vivace.errors import UserError
from vivace.hardware.cgroups import own_limits
from vivace.hardware.cpu import read_cpu
from vivace.hardware.gpu import read_gpus

__all__ = ["Job", "refuse_another_job", "this_job"]

_LARGEST_BYTES = 2**20  # scripts and settings; data and checkpoints may change


@dataclass(frozen=True)
class Job:
    """Where a command ran, and on what."""

    directory: str
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the files that the command names."""
    gpus: tuple[str, ...] = ()
    cores: float = 0.0


def this_job(command: Sequence[str]) -> Job:
    gpus = tuple(gpu.name for gpu in read_gpus(None, []).gpus)
    files = {word: _sha256(Path(word)) for word in command if _is_small_file(Path(word))}
    return Job(str(Path.cwd()), files, gpus, read_cpu(own_limits(), []).usable_cores)


def refuse_another_job(before: Job | None, command: Sequence[str], in_queue: bool) -> None:
    """``in_queue``: the runs are jobs of their own, on machines that this one need not resemble."""
    if before is None:  # written by an older vivace
        return
    now = this_job(command)
    start_again = "start again, without --resume: runs before and after that cannot be compared"
    if now.directory != before.directory:
        raise UserError(f"it was started in {before.directory}", hint=f"cd {shlex.quote(before.directory)}")
    for word, digest in before.files.items():
        if now.files.get(word) != digest:
            raise UserError(f"{word} has changed since it was started", hint=start_again)
    if not in_queue and (now.gpus, now.cores) != (before.gpus, before.cores):
        was = f"{_machine(before)}; this is {_machine(now)}"
        raise UserError(f"it was started on a machine with {was}", hint=start_again)


def _machine(job: Job) -> str:
    return f"{', '.join(job.gpus) or 'no GPU'} and {job.cores:g} cores"


def _is_small_file(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size <= _LARGEST_BYTES
    except OSError:  # a word that is no path at all
        return False


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""

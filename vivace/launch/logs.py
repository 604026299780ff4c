"""Finds the logs of a job by id, name or pattern, and reads or follows them.

Looks at the ``run.json`` of earlier submissions, then at what Slurm still knows, then at ``slurm/log``. Reads only.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vivace.errors import UserError
from vivace.launch.jobs import JobInfo
from vivace.launch.queue import is_job_id
from vivace.launch.status import ask_slurm
from vivace.launch.submit import RECORD
from vivace.records.base import RecordError
from vivace.records.run import Run

__all__ = ["Logs", "commands_of", "find_logs", "find_runs", "follow", "unreadable_runs"]

POLL_S = 0.5
_STATE_S = 5.0


@dataclass(frozen=True)
class Logs:
    """The files of one job. They may not exist yet."""

    job_id: str
    stdout: Path
    stderr: Path


def find_runs(wanted: str, *outputs: Path) -> list[Run]:
    """Records of submissions under ``outputs`` that have that id, name or pattern; the oldest first.

    One of them may be a run's own folder: inside a job, ``VIVACE_RUNS`` is.
    """
    runs = []
    found = [path for output in outputs for pattern in (RECORD, f"*/{RECORD}") for path in output.glob(pattern)]
    for path in sorted(found):
        with contextlib.suppress(RecordError):
            run = Run.load(path)
            if run.job_id is not None and _fits(run, wanted):
                runs.append(run)
    return sorted(runs, key=lambda run: int(run.job_id or 0))


def commands_of(output: Path) -> dict[str, str]:
    """Job number → the command that was sent from here; without secrets, as records are."""
    commands = {}
    for path in [*output.glob(RECORD), *output.glob(f"*/{RECORD}")]:
        with contextlib.suppress(RecordError):
            run = Run.load(path)
            if run.job_id is not None:
                commands[run.job_id] = shlex.join(run.command)
    return commands


def unreadable_runs(output: Path) -> list[str]:
    """Why records of submissions under ``output`` cannot be used: damaged, or of a newer vivace. One sentence each."""
    reasons = []
    for path in sorted([*output.glob(RECORD), *output.glob(f"*/{RECORD}")]):
        try:
            Run.load(path)
        except RecordError as error:
            reasons.append(error.message)
    return reasons


def _fits(run: Run, wanted: str) -> bool:
    if is_job_id(wanted):
        return run.job_id == wanted.partition("_")[0]
    name = run.name or ""
    return wanted in (name, Path(run.folder).name) or fnmatch.fnmatchcase(name, wanted)


def find_logs(wanted: str, *outputs: Path) -> list[Logs]:
    """The newest job of that id, name or pattern; one entry a task for an array."""
    runs = find_runs(wanted, *outputs)
    if runs:
        return _of_run(runs[-1], wanted)
    if is_job_id(wanted) and (info := ask_slurm(wanted)) and info.stdout:
        return [_of_info(info)]
    found = sorted(glob.glob(f"slurm/log/*@*_{glob.escape(wanted)}_*.out"))
    if found:
        return [Logs(wanted, Path(path), Path(path).with_suffix(".err")) for path in found]
    raise UserError(
        f"no log of a job {wanted!r} is known in {outputs[0]}/",
        hint="give the job's number or name; --output FOLDER if it was sent from elsewhere",
    )


def _of_info(info: JobInfo) -> Logs:
    assert info.stdout is not None
    return Logs(info.job_id, Path(info.stdout), Path(info.stderr or info.stdout))


def _of_run(run: Run, wanted: str) -> list[Logs]:
    assert run.job_id is not None
    if run.stdout is None or run.stderr is None:
        raise UserError(f"{run.folder}/{RECORD} names no log files")
    if run.array is None:
        return [Logs(run.job_id, _filled(run.stdout, run.job_id, None), _filled(run.stderr, run.job_id, None))]
    task = wanted.partition("_")[2] if is_job_id(wanted) else ""
    tasks = [task] if task else _written_tasks(run)
    return [
        Logs(f"{run.job_id}_{each}", _filled(run.stdout, run.job_id, each), _filled(run.stderr, run.job_id, each))
        for each in tasks
    ]


def _written_tasks(run: Run) -> list[str]:
    stems = (path.stem for path in Path(run.folder).glob(f"{run.job_id}_*.out"))
    return sorted((stem.rpartition("_")[2] for stem in stems), key=int)


def _filled(pattern: str, job_id: str, task: str | None) -> Path:
    words = {"%%": "%", "%j": job_id, "%A": job_id, "%a": task or ""}
    out, rest = "", pattern
    while rest:
        pair = rest[:2]
        out += words.get(pair, rest[0])
        rest = rest[2:] if pair in words else rest[1:]
    return Path(out)


def follow(path: Path, still_active: Callable[[], bool], pause_s: float = POLL_S) -> Iterator[bytes]:
    """The file's bytes as they come, until the job is over and all was read. The file may come later."""
    position, active, asked = 0, True, 0.0
    while True:
        data = _read_from(path, position)
        position += len(data)
        if data:
            yield data
        elif not active:
            return
        else:
            time.sleep(pause_s)
        if active and time.monotonic() - asked > min(_STATE_S, 10 * pause_s):
            active, asked = still_active(), time.monotonic()


def _read_from(path: Path, position: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            if file.tell() < position:  # truncated by someone: what is there now is new
                position = 0
            file.seek(position)
            return file.read(1 << 20)
    except FileNotFoundError:
        return b""

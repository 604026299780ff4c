"""The starts of one job: one that is requeued runs in pieces. From Slurm's accounts and the job's folder."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from vivace.launch.achieved import MEASUREMENT, records_folder
from vivace.launch.jobs import JobInfo, run_state
from vivace.launch.slurm import ask, slurm_is_here
from vivace.launch.status import EVERY_START, SACCT_FIELDS, from_sacct
from vivace.records.base import RecordError
from vivace.records.measurement import Measurement
from vivace.records.run import Run, RunState

__all__ = ["Piece", "joined", "pieces_of"]


@dataclass(frozen=True)
class Piece:
    """One start. Times are local, as Slurm writes them; None where nobody kept them."""

    state: RunState
    start: str | None = None
    end: str | None = None
    ran_s: int | None = None
    exit_code: int | None = None
    samples_per_s: float | None = None


def pieces_of(run: Run, info: JobInfo | None) -> list[Piece]:
    """Oldest first. Without accounts the job's folder tells when each piece saved, and Slurm when the last began."""
    job_id = run.job_id or ""
    kept = _accounted(job_id)
    if not kept:
        saved = [Piece("completed", end=moment) for moment in _moments_saved(Path(run.folder), job_id)]
        kept = [*saved, *([_of(info)] if info is not None else [])]
    return joined(kept, _measurements(records_folder(run.folder, job_id)))


def joined(pieces: list[Piece], measured: list[tuple[str, float]]) -> list[Piece]:
    """Each measurement (local time, samples/s) at the piece that it was taken in; the last one of a piece counts."""
    found = list(pieces)
    for moment, rate in sorted(measured):
        at = max(
            (n for n, piece in enumerate(found) if piece.start is not None and piece.start <= moment), default=None
        )
        if at is not None:
            found[at] = replace(found[at], samples_per_s=rate)
    return found


def _accounted(job_id: str) -> list[Piece]:
    if not slurm_is_here():
        return []
    answer = ask("sacct", "-j", job_id, *EVERY_START, "--format", SACCT_FIELDS)
    return [_of(start) for start in from_sacct(answer.out)] if answer.code == 0 else []


def _of(info: JobInfo) -> Piece:
    end = None
    if info.start is not None and info.run_s is not None and not info.active:
        end = (datetime.fromisoformat(info.start) + timedelta(seconds=info.run_s)).isoformat()
    return Piece(run_state(info.state), info.start, end, info.run_s, info.exit_code)


def _moments_saved(folder: Path, job_id: str) -> list[str]:
    with contextlib.suppress(OSError):
        return (folder / f"{job_id}.saved").read_text().split()
    return []


def _measurements(folder: Path) -> list[tuple[str, float]]:
    found = []
    for path in [*folder.glob(MEASUREMENT), *folder.glob(f"*/{MEASUREMENT}")]:
        with contextlib.suppress(RecordError, ValueError):
            record = Measurement.load(path)
            if record.samples_per_s is not None:
                local = datetime.fromisoformat(record.origin.started_at).astimezone().replace(tzinfo=None)
                found.append((local.isoformat(timespec="seconds"), record.samples_per_s))
    return found

"""What a job achieved, from the records that vivace wrote in it, beside its logs (``VIVACE_RUNS``). Reads only."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from vivace.records.base import RecordError
from vivace.records.measurement import Measurement
from vivace.records.proof import Proof
from vivace.records.trained import Trained

__all__ = [
    "Achieved", "newest_measurement", "newest_proof", "newest_trained", "of_measurement", "of_trained",
    "records_folder", "unreadable_records",
]  # fmt: skip

MEASUREMENT, PROOF, TRAINED = "measurement.json", "proof.json", "trained.json"


@dataclass(frozen=True, kw_only=True)
class Achieved:
    """Figures of a training; None where ``source`` does not tell. ``energy_how`` says by what, or why not."""

    source: str
    step_ms: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    mfu_pct: float | None = None
    joules_per_sample: float | None = None
    energy_how: str | None = None
    global_batch: int | None = None


def records_folder(run_folder: str, job_id: str) -> Path:
    """Where a job's own records lie; the tasks of an array (``17_3``) have a folder each."""
    return Path(run_folder) / job_id if "_" in job_id else Path(run_folder)


def newest_measurement(folder: Path) -> tuple[Measurement, Path] | None:
    """The last one that was finished (a requeued job may have made several); damaged files are passed over."""
    for path in _newest_first(folder, MEASUREMENT):
        with contextlib.suppress(RecordError):
            return Measurement.load(path), path
    return None


def newest_trained(folder: Path) -> tuple[Trained, Path] | None:
    """What ``vivace train`` wrote at its end."""
    for path in _newest_first(folder, TRAINED):
        with contextlib.suppress(RecordError):
            return Trained.load(path), path
    return None


def of_trained(record: Trained, source: str) -> Achieved:
    return Achieved(
        source=source,
        step_ms=record.step_ms,
        samples_per_s=record.samples_per_s,
        tokens_per_s=record.tokens_per_s,
        global_batch=record.global_batch,
    )


def unreadable_records(folder: Path) -> list[str]:
    """Why records of the job cannot be used, one sentence each: its figures may be missing for that."""
    reasons = []
    for kind, name in ((Measurement, MEASUREMENT), (Proof, PROOF), (Trained, TRAINED)):
        for path in _newest_first(folder, name):
            try:
                kind.load(path)
            except RecordError as error:
                reasons.append(error.message)
    return reasons


def newest_proof(folder: Path) -> tuple[Proof, Path] | None:
    for path in _newest_first(folder, PROOF):
        with contextlib.suppress(RecordError):
            return Proof.load(path), path
    return None


def _newest_first(folder: Path, name: str) -> list[Path]:
    found = [*folder.glob(name), *folder.glob(f"*/{name}")]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def of_measurement(record: Measurement, source: str) -> Achieved:
    return Achieved(
        source=source,
        step_ms=record.step_ms.mean if record.step_ms else None,
        samples_per_s=record.samples_per_s,
        tokens_per_s=record.tokens_per_s,
        mfu_pct=None if record.mfu is None else 100 * record.mfu,
        joules_per_sample=record.energy.joules_per_sample,
        energy_how=record.energy.how,
        global_batch=record.global_batch_size,
    )

"""What a job last saved, and whether its training is done: rank 0 of a command that uses ``vivace.preemption`` notes
both beside the logs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from vivace.preemption.job_files import JobWord, read_state

__all__ = ["SavedCheckpoint", "last_checkpoint", "training_is_done"]


@dataclass(frozen=True)
class SavedCheckpoint:
    path: str
    saved_at: str | None
    """UTC, ISO 8601; None when the file is not to be found here."""


def last_checkpoint(run_folder: Path, job_id: str) -> SavedCheckpoint | None:
    """None when the job noted none: it saved nothing yet, or saves in a way of its own."""
    state = read_state(run_folder / f"{job_id}.state")
    if state is None or state.checkpoint is None:
        return None
    try:
        seconds = Path(state.checkpoint).stat().st_mtime
    except OSError:
        return SavedCheckpoint(state.checkpoint, None)
    return SavedCheckpoint(state.checkpoint, datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds"))


def training_is_done(run_folder: Path, job_id: str) -> bool:
    """In the last start of the job. What came after it may have failed: an export, the job script itself."""
    state = read_state(run_folder / f"{job_id}.state")
    return state is not None and state.word is JobWord.DONE

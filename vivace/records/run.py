"""``Run``: a training that was launched for good: what was asked, where it ran, how it ended."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vivace.records.base import Record

__all__ = ["Run"]


class Run(Record):
    KIND = "run"

    command: tuple[str, ...]
    practices: tuple[str, ...] = ()
    launcher: Literal["local", "slurm"]
    job_id: str | None = None
    state: Literal["queued", "running", "completed", "failed", "cancelled", "timeout", "out-of-memory"]
    exit_code: int | None = None
    started_at: str | None = Field(None, description="UTC, ISO 8601")
    ended_at: str | None = None
    folder: str

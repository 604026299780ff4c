"""``Run``: a training that was launched for good: what was asked, where it ran, how it ended."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vivace.records.base import Record
from vivace.records.equality import Equality
from vivace.records.older import Answer
from vivace.records.scale import SplitFacts

__all__ = ["Run", "RunState"]

RunState = Literal[
    "queued", "running", "completed", "failed", "cancelled", "timeout", "out-of-memory", "node-failure", "unknown"
]


class Run(Record):
    KIND = "run"
    VERSION = 2  # told: answers instead of sentences

    command: tuple[str, ...]
    practices: tuple[str, ...] = ()
    told: dict[str, Answer] = Field(default_factory=dict, description="practice → what became of it")
    launcher: Literal["local", "slurm"]
    name: str | None = None
    job_id: str | None = None
    state: RunState
    exit_code: int | None = None
    submitted_at: str | None = Field(default=None, description="UTC, ISO 8601")
    started_at: str | None = Field(default=None, description="UTC, ISO 8601")
    ended_at: str | None = None
    folder: str
    cluster: str | None = Field(default=None, description="name in the catalogue, or the partition that was asked")
    gpus: int | None = Field(default=None, ge=0)
    nodes: int | None = Field(default=None, ge=1)
    time_limit_s: int | None = Field(default=None, description="of one piece, when the job is split")
    pieces: int = Field(default=1, ge=1)
    qos: str | None = None
    array: str | None = None
    script: str | None = None
    ranks: int | None = Field(default=None, ge=1, description="processes that `run --ranks` split it over")
    scale: SplitFacts | None = Field(default=None, description="what was split, and what the ranks exchanged")
    equality: Equality | None = Field(default=None, description="the proof that ranks train as one process does")
    stdout: str | None = Field(default=None, description="a path; for Slurm with %j or %A_%a in it")
    stderr: str | None = None

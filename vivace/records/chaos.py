"""``Chaos``: a fault that was put into a job on purpose, and what became of the job."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vivace.records.base import Part, Record

__all__ = ["Chaos", "JobLife", "Straggler"]

FaultName = Literal["kill", "stop", "hang", "worker", "slow", "nan", "disk-full", "bit-rot"]


class JobLife(Part):
    """One start of the command."""

    exit_code: int | None = Field(description="as a shell reports it; None: it hung, and vivace ended it")
    seconds: float
    steps: int = Field(description="optimizer steps of the rank that took most")
    resumed_step: int | None = Field(default=None, description="told by vivace.checkpoint; None: nothing was told")
    first_logged_step: int | None = None
    last_logged_step: int | None = None
    said: str | None = Field(default=None, description="of a later start: its first line that looks like trouble")


class Straggler(Part):
    rank: int
    late_ms: float = Field(description="median, where ranks first meet in a step, behind the first rank")
    others_late_ms: float = Field(description="of the slowest of the other ranks")


class Chaos(Record):
    KIND = "chaos"

    command: tuple[str, ...]
    fault: FaultName
    rank: int
    step: int = Field(description="asked: after so many optimizer steps of the process")
    injected: bool
    injected_step: int | None = None
    target: str | None = Field(default=None, description="what was hit: a process, a file and its bit, a folder")
    outcome: Literal[
        "survived", "resumed", "ended", "hung", "unnoticed", "restart failed", "not injected"
    ]  # fmt: skip
    detected_by: Literal["a line of its output", "its end", "nobody"] = "nobody"
    detected_s: float | None = Field(default=None, description="from the fault to the first sign")
    detected_line: str | None = None
    ended_s: float | None = Field(default=None, description="from the fault to the end of that life")
    lives: tuple[JobLife, ...] = ()
    steps_lost: int | None = None
    steps_lost_from: Literal["vivace.checkpoint", "the log"] | None = None
    straggler: Straggler | None = None
    notes: tuple[str, ...] = ()
    folder: str

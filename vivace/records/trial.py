"""``Trial``: one fresh process with a set of practices, and how it ended. Made by tune, one a folder."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from vivace.records.base import Record
from vivace.records.measurement import Measurement

__all__ = ["Outcome", "Trial"]


class Outcome(StrEnum):
    """How a trial ended."""

    OK = "ok"
    OUT_OF_MEMORY = "out-of-memory"
    CRASH = "crash"
    NO_TRAINING = "no training"
    """The command ended well, and no training step was seen."""
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


class Trial(Record):
    """Out of memory, a crash and a time-out are results like any other."""

    KIND = "trial"
    VERSION = 2  # with the measurement's

    name: str
    command: tuple[str, ...]
    practices: tuple[str, ...]
    ranks: int | None = Field(None, description="that vivace split it over; None: it was not split")
    outcome: Outcome
    seconds: float = Field(ge=0, description="that it ran, without its time in a queue")
    queued_s: float = Field(0.0, ge=0, description="in Slurm's queue (tune --slurm)")
    message: str = ""
    evidence: bool | None = Field(None, description="whether FLOPs were counted and kernels profiled")
    seed_offset: int | None = Field(None, description="by which the script's seeds were shifted; None: untouched")
    grad_norms: bool | None = None
    timeout_s: float | None = Field(None, description="after which it would have been ended")
    measurement: Measurement | None = None

"""``Trial``: one fresh process with a set of practices, and how it ended. Made by tune, one a folder."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vivace.records.base import Record
from vivace.records.measurement import Measurement

__all__ = ["Outcome", "Trial"]

Outcome = Literal["ok", "out-of-memory", "crash", "timeout", "interrupted"]


class Trial(Record):
    """Out of memory, a crash and a time-out are results like any other."""

    KIND = "trial"

    name: str
    command: tuple[str, ...]
    practices: tuple[str, ...]
    outcome: Outcome
    seconds: float = Field(ge=0)
    message: str = ""
    measurement: Measurement | None = None

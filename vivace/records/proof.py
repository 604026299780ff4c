"""``Proof``: what tune found, by how much, and why it does no harm."""

from __future__ import annotations

from pydantic import Field

from vivace.records.base import Part, Record
from vivace.records.finding import Risk

__all__ = ["Gain", "Interval", "Proof"]


class Interval(Part):
    """A ratio with its confidence interval."""

    median: float = Field(gt=0)
    low: float = Field(gt=0)
    high: float = Field(gt=0)


class Gain(Part):
    """One practice of the winning set: what it brings alone, and as the last one added."""

    practice: str
    risk: Risk
    alone: Interval | None = None
    last: Interval | None = None


class Proof(Record):
    KIND = "proof"

    command: tuple[str, ...]
    speedup: Interval
    practices: tuple[Gain, ...]
    trials: tuple[str, ...] = Field(description="folders of the trials it rests on")
    losses_in_band: bool | None = None
    notes: tuple[str, ...] = ()

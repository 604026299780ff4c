"""``Equality``: whether a training that is split over ranks is that of one process, by its first steps. Made by run and
tune with ``--ranks``; kept with the run, and remembered for the next run of the same command."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from vivace.records.base import Record

__all__ = ["Equality", "EqualityVerdict"]


class EqualityVerdict(StrEnum):
    EQUAL = "equal"
    """But for rounding."""
    DIFFERENT = "different"
    NOT_COMPARED = "not compared"


class Equality(Record):
    KIND = "equality"

    command: tuple[str, ...]
    mode: str = Field(description="ddp, zero1 or fsdp")
    ranks: int = Field(ge=1)
    practices: tuple[str, ...] = Field((), description="beside the mode, on both sides")
    reference: str = Field("one process", description="what the ranks are compared with")
    verdict: EqualityVerdict
    says: str = Field(description="the verdict in a sentence, with the figures")
    gradient: float | None = Field(
        None, description="at the first step of each optimizer: length of the difference over the gradient's, largest"
    )
    same_bits: bool = Field(False, description="gradients and updates of all compared steps are the same to the bit")
    allowed: float | None = Field(None, description="the difference of the first gradient that rounding explains")
    losses: tuple[float, ...] = Field((), description="relative difference of each step's loss, from the first on")
    parameters: int | None = Field(None, description="tensors that the first optimizer trains")
    compared: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    seconds: float = Field(0.0, ge=0, description="that the runs took")
    proved_at: str = Field("", description="UTC, ISO 8601")
    vivace: str = ""

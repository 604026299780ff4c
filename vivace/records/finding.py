"""``Finding``: something that holds a training job back, with its evidence and its price. Made by check."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field, model_validator

from vivace.records.base import Part, Record
from vivace.records.ledger import Ledger

__all__ = ["Finding", "Findings", "Place", "Risk", "Unexplained", "Verdict", "unknown_likely"]

_SMALLEST_REST = 0.02  # of a step: a larger speedup than 50 is not believed


class Risk(StrEnum):
    """What a change may do to the numbers of a training; a proof asks more of a riskier one."""

    EXACT = "exact"
    ROUNDING = "rounding"
    ALGORITHMIC = "algorithmic"


class Verdict(StrEnum):
    """What the findings say about the job as a whole."""

    TUNED = "tuned"
    IMPROVABLE = "improvable"
    UNEXPLAINED = "unexplained"
    """Nothing was found, but much of the step is not accounted for."""
    UNKNOWN = "unknown"
    """There was not enough to see."""


class Place(Part):
    file: str
    line: int


def unknown_likely(worth: float) -> tuple[float, float, float]:
    """Likely speedup, low and high, where nothing but the bound is known: half of the time, between none and all.

    >>> unknown_likely(2.0)
    (1.3333333333333333, 1.0, 2.0)
    """
    return 1 / (1 - 0.5 * (1 - 1 / worth)), 1.0, worth


class Finding(Part):
    """``worth`` is an upper bound: the speedup if the exposed time vanished (Amdahl). ``likely`` is what to expect."""

    practice: str
    exposed_ms: float = Field(ge=0)
    idle_ms: float = Field(0.0, ge=0, description="the part of it in which the GPU has nothing to do: it is won once")
    worth: float = Field(ge=1)
    likely: float = Field(gt=0, description="the speedup that removing it should bring; lists are ordered by it")
    likely_low: float = Field(gt=0, description="lower end of the range around ``likely``; below 1 it may cost time")
    likely_high: float = Field(gt=0, description="upper end of that range")
    risk: Risk
    where: Place | None = None
    evidence: dict[str, float | int | str | bool | None]
    applies: bool = Field(description="whether `run --with` can do it from outside")
    title: str = ""
    says: str = Field("", description="one sentence with the figures in it")
    setting: str | None = Field(None, description="the word for `--with`")
    by_hand: str = Field("", description="the lines to change, for those who prefer to edit")
    also: tuple[str, ...] = Field((), description="other practices that see the same cause on the same lines")
    also_try: tuple[str, ...] = Field((), description="other words that may serve as well")
    why_not: str | None = Field(None, description="why it does not apply from outside")

    @model_validator(mode="before")
    @classmethod
    def _of_older_records(cls, fields: Any) -> Any:
        """Records made before ``likely`` existed have the bound only."""
        if not isinstance(fields, dict) or "likely" in fields or "worth" not in fields:
            return fields
        likely, low, high = unknown_likely(fields["worth"])
        return {**fields, "likely": likely, "likely_low": low, "likely_high": high}


class Unexplained(Part):
    """Time that was seen to be lost and that no finding accounts for."""

    ms: float = Field(gt=0, description="per step")
    step_ms: float = Field(gt=0)
    share: float = Field(gt=0, le=1)
    known: tuple[str, ...] = Field((), description="what was measured about it, one sentence each")


class Findings(Record):
    """All findings on one command, the most valuable first."""

    KIND = "findings"

    measurement: str = Field(description="path of the measurement they rest on")
    findings: tuple[Finding, ...]
    verdict: Verdict = Field(
        description="tuned: no finding is worth 2 %, and nearly all of the step is explained; unexplained: it is not"
    )
    unexplained: Unexplained | None = None
    unlikely: tuple[Finding, ...] = Field((), description="seen too, and more likely to cost time than to save it")
    likely: float | None = Field(None, gt=0, description="the speedup that all findings together should bring")
    worth: float = Field(1.0, ge=1, description="upper bound of all findings together")
    ledger: Ledger | None = Field(None, description="the measurement's: where every millisecond of the step went")
    cause: str | None = Field(None, description="what the GPU waits for, from differential runs")
    incomplete: str | None = Field(None, description="what could not be seen, and why")
    notes: tuple[str, ...] = Field((), description="causes of waiting, from differential runs")

    @property
    def left(self) -> float:
        """The likely speedup if all findings were fixed, and the unexplained time vanished too."""
        share = self.unexplained.share if self.unexplained is not None else 0.0
        return 1 / max(_SMALLEST_REST, 1 / self.likely_together - share)

    @property
    def likely_together(self) -> float:
        """Of records that do not tell it, what the best finding should bring alone."""
        return self.likely or max((1.0, *(finding.likely for finding in self.findings)))

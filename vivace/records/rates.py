"""``RateSearch``: the learning rates that a range test tried, the loss after each, and what they suggest."""

from __future__ import annotations

from pydantic import Field

from vivace.records.base import Part, Record
from vivace.records.machine import Machine

__all__ = ["RateSearch", "RateTried"]


class RateTried(Part):
    """``rate``: of the group with the largest one; ``loss``: right after the step with it."""

    rate: float
    loss: float
    smoothed: float


class RateSearch(Record):
    """All suggestions are rates that were tried. None: the losses do not show it."""

    KIND = "rate-search"

    command: tuple[str, ...]
    optimizer: str = ""
    own_rates: tuple[float, ...] = Field((), description="of the parameter groups; their ratios were kept")
    first_loss: float | None = None
    tried: tuple[RateTried, ...] = ()
    steepest: float | None = Field(None, description="where the smoothed loss falls fastest")
    tenth_of_best: float | None = Field(None, description="a tenth of the rate with the lowest smoothed loss, or less")
    diverges: float | None = Field(None, description="the first rate after which the loss rises above where it began")
    suggested: float | None = Field(None, description="half a decade below the rate with the lowest smoothed loss")
    complete: bool = Field(False, description="all rates were tried, or the loss diverged")
    interrupted: bool = False
    ended: str = ""
    notes: tuple[str, ...] = ()
    machine: Machine | None = None

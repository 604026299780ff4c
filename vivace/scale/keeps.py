"""What each rank keeps: all of a model and its optimizer, or a share. Said by the practice, without torch."""

from __future__ import annotations

from enum import Enum

__all__ = ["Keeps"]


class Keeps(Enum):
    ALL = "all"
    SHARES_OF_STATES = "shares of the optimizer's states"
    SHARES_OF_ALL = "shares of parameters, gradients and states"

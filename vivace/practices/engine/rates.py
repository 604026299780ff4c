"""Other learning rates for a step, around the script's own: what it sets and prints, and its schedules, stay.

Used by the methods that change the rate: ``before_step`` sets it, ``after_step`` puts the script's value back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    import torch

__all__ = ["StepRates"]


class StepRates:
    def __init__(self) -> None:
        self._own: dict[int, list[Any]] = {}

    def set(self, optimizer: torch.optim.Optimizer, change: Callable[[dict[str, Any]], float]) -> None:
        """``change(group)`` is the factor for that group's rate."""
        self._own[id(optimizer)] = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * change(group)

    def put_back(self, optimizer: torch.optim.Optimizer) -> None:
        for group, rate in zip(optimizer.param_groups, self._own.pop(id(optimizer), ())):
            group["lr"] = rate

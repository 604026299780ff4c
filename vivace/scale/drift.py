"""Ranks that drift apart are noticed: their parameters must stay the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from vivace.scale.errors import ScaleError
from vivace.scale.group import Group

__all__ = ["Drift", "checksum"]

_CHECKED = (1, 2, 10)  # steps; after that every _EVERY
_EVERY = 50
_SILENT = -(2**62)  # smaller than any: a rank on which the parameter is gone already says nothing


class Drift:
    def __init__(self, group: Group, parameters: Callable[[], list[torch.Tensor | None]]) -> None:
        self.group, self.parameters = group, parameters
        self.steps = 0
        self.checks = 0

    def install(self) -> None:
        def after_step(*_: Any) -> None:
            self.steps += 1
            if self.steps in _CHECKED or self.steps % _EVERY == 0:
                self.check()

        after_step._torchdynamo_disable = True  # type: ignore[attr-defined]
        register_optimizer_step_post_hook(after_step)

    def check(self) -> None:
        sums = [None if parameter is None else checksum(parameter) for parameter in self.parameters()]
        if not sums:
            return
        largest = [_SILENT if each is None else each for each in sums]
        smallest = [_SILENT if each is None else -each for each in sums]
        both = self.group.largest(torch.tensor([largest, smallest], dtype=torch.int64))
        self.checks += 1
        known = both[0] != _SILENT
        if not torch.equal(both[0][known], -both[1][known]):
            raise ScaleError(
                f"the ranks' parameters differ after {self.steps} optimizer steps: they no longer train one model"
            )


def checksum(parameter: torch.Tensor) -> int:
    """By the bits."""
    with torch.no_grad():
        bits = parameter.detach().contiguous().reshape(-1).view(torch.uint8)
        weights = torch.arange(1, bits.numel() + 1, device=bits.device) % 251
        return int((bits.to(torch.int64) * weights).sum().item())

"""Norms of the gradients, where they are asked for: in the warm-up, and in a few steps after the timed ones."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from vivace.measure.inside.norms import total_norm
from vivace.measure.inside.stages.stage import Stage
from vivace.measure.inside.training import Training

__all__ = ["NORM_STEPS", "GradientNorms"]

NORM_STEPS = 8


class GradientNorms(Stage):
    """``seen``: by number of the step, of each optimizer."""

    says = "recording gradient norms"
    takes_norms = True

    def __init__(self, training: Training) -> None:
        super().__init__(training)
        self.seen: dict[int, list[torch.Tensor]] = {}

    def begin(self) -> bool:
        return self.training.request.grad_norms

    def step(self) -> bool:
        return self.steps >= NORM_STEPS

    def note(self, optimizer: Any) -> None:
        """Right before it steps."""
        with contextlib.suppress(Exception):
            gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            if not gradients:  # functional gradients are in no parameter
                return
            norm = total_norm(gradients).detach()
            self.seen.setdefault(self.training.steps, []).append(norm)

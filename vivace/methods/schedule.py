"""Learning-rate schedules as plain functions: step → factor of the learning rate, between 0 and 1.

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, Cosine(steps=10_000, warmup=500))
    scheduler.step()        # after each optimizer step

Each one begins with a linear warm-up of ``warmup`` steps, and stays at its last value after ``steps``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["SCHEDULES", "Cosine", "Exponential", "OneCycle", "Poly", "Schedule", "Staircase", "WarmupStableDecay"]


@dataclass(frozen=True)
class Schedule:
    steps: int
    warmup: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 <= self.warmup < self.steps:
            raise ValueError(f"a schedule of {self.steps} steps cannot have a warm-up of {self.warmup}")

    def __call__(self, step: int) -> float:
        """``step`` counts from 0: the first step of a warm-up of 10 has a tenth of the rate."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        done = (min(step, self.steps - 1) - self.warmup) / max(1, self.steps - self.warmup - 1)
        return self.after_warmup(done)

    def after_warmup(self, done: float) -> float:
        """``done`` runs from 0, at the end of the warm-up, to 1, at the last step."""
        raise NotImplementedError


@dataclass(frozen=True)
class Cosine(Schedule):
    """Loshchilov and Hutter, 2017."""

    last: float = 0.0

    def after_warmup(self, done: float) -> float:
        return self.last + (1 - self.last) * (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Smith and Topin, 2018: up from 1/25 of the rate for 30 % of the steps, then down to 1/250,000, as cosines."""

    first: float = 1 / 25
    last: float = 1 / 250_000
    up: float = 0.3

    def after_warmup(self, done: float) -> float:
        begin, end, part = (
            (self.first, 1.0, done / self.up) if done < self.up else (1.0, self.last, (done - self.up) / (1 - self.up))
        )
        return end + (begin - end) * (1 + math.cos(math.pi * part)) / 2


@dataclass(frozen=True)
class WarmupStableDecay(Schedule):
    """Hu et al., 2024: the full rate, then a linear decay over the last ``decay`` of the steps."""

    decay: float = 0.2

    def after_warmup(self, done: float) -> float:
        return 1.0 if done < 1 - self.decay else (1 - done) / self.decay


@dataclass(frozen=True)
class Poly(Schedule):
    """You et al., 2017: (1 - share of the steps) to a power; 2 in the large-batch recipes."""

    power: float = 2.0

    def after_warmup(self, done: float) -> float:
        return (1 - done) ** self.power


@dataclass(frozen=True)
class Staircase(Schedule):
    """A tenth of the rate after each third of the steps: He et al., 2016."""

    factor: float = 0.1
    stairs: int = 3

    def after_warmup(self, done: float) -> float:
        return self.factor ** min(self.stairs - 1, int(done * self.stairs))


@dataclass(frozen=True)
class Exponential(Schedule):
    """Down to ``last`` in equal factors."""

    last: float = 0.01

    def after_warmup(self, done: float) -> float:
        return self.last**done


SCHEDULES = {
    "cosine": Cosine, "exponential": Exponential, "onecycle": OneCycle, "poly": Poly, "step": Staircase,
    "wsd": WarmupStableDecay,
}  # fmt: skip

"""``Sample``: what the runs of one entry took, in any unit; infinity for a run that never arrived."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Estimate", "Sample"]


@dataclass(frozen=True)
class Estimate:
    """A value and its interval. An end that the data do not bound is 0 or infinity."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Sample:
    """``amounts`` to the target, above 0. ``limit``: where every run was ended if it had not arrived; None: at no one
    number, because the limit counts something else."""

    amounts: tuple[float, ...]
    limit: float | None = None

    def __post_init__(self) -> None:
        assert all(amount > 0 for amount in self.amounts), self.amounts

    def __len__(self) -> int:
        return len(self.amounts)

    @property
    def arrived(self) -> int:
        return sum(map(math.isfinite, self.amounts))

    @property
    def all_arrived(self) -> bool:
        return self.arrived == len(self)

    @property
    def logs(self) -> list[float]:
        return [math.log(amount) for amount in self.amounts]

    @property
    def log_limit(self) -> float:
        return math.log(self.limit) if self.limit is not None else math.inf

"""A budget for a whole study: ``20gpuh``, ``2h``, ``500kJ``; and what has been spent of it.

>>> Budget.parse("20gpuh"), str(Budget.parse("90min"))
(Budget(amount=72000.0, unit=<BudgetUnit.GPU_SECONDS: 'GPU-seconds'>), '1.5 h')
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from vivace.errors import UserError

__all__ = ["Budget", "BudgetUnit", "Spent", "Stretch", "spent_of"]

_WRITTEN = re.compile(r"\s*(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)\s*([a-z-]+)\s*", re.IGNORECASE)
_HINT = "hours of the clock (2h, 90min), of GPUs (20gpuh), or energy (500kJ)"


class BudgetUnit(StrEnum):
    SECONDS = "seconds"
    """Of the clock, while at least one trial runs: time in a queue or between two sessions is not counted."""
    GPU_SECONDS = "GPU-seconds"
    JOULES = "joules"


_UNITS = {
    "s": (1, BudgetUnit.SECONDS), "min": (60, BudgetUnit.SECONDS), "h": (3600, BudgetUnit.SECONDS),
    "d": (86400, BudgetUnit.SECONDS), "gpus": (1, BudgetUnit.GPU_SECONDS), "gpumin": (60, BudgetUnit.GPU_SECONDS),
    "gpuh": (3600, BudgetUnit.GPU_SECONDS), "gpud": (86400, BudgetUnit.GPU_SECONDS),
    "j": (1, BudgetUnit.JOULES), "kj": (1e3, BudgetUnit.JOULES), "mj": (1e6, BudgetUnit.JOULES),
    "wh": (3600, BudgetUnit.JOULES), "kwh": (3.6e6, BudgetUnit.JOULES),
}  # fmt: skip


@dataclass(frozen=True)
class Budget:
    amount: float
    unit: BudgetUnit

    @classmethod
    def parse(cls, text: str) -> Budget:
        found = _WRITTEN.fullmatch(text)
        word = found[2].lower().replace("-", "") if found else ""
        if found is None or word not in _UNITS:
            raise UserError(f"--budget {text!r} is not a budget", hint=_HINT)
        factor, unit = _UNITS[word]
        amount = float(found[1]) * factor
        if not 0 < amount < math.inf:
            raise UserError(f"--budget {text!r} must be above 0", hint=_HINT)
        return cls(amount, unit)

    def __str__(self) -> str:
        return in_words(self.amount, self.unit)


@dataclass(frozen=True)
class Stretch:
    """One run of a command: when it began (``time.time()``) and what it took."""

    start: float
    seconds: float
    gpus: int = 0
    energy_j: float | None = None


@dataclass(frozen=True)
class Spent:
    seconds: float
    """Of the clock while anything ran."""
    trial_seconds: float
    """Of all runs, one after the other."""
    gpu_seconds: float
    energy_j: float | None

    def of(self, unit: BudgetUnit) -> float:
        if unit is BudgetUnit.SECONDS:
            return self.seconds
        return self.gpu_seconds if unit is BudgetUnit.GPU_SECONDS else self.energy_j or 0.0


def spent_of(stretches: Iterable[Stretch]) -> Spent:
    """
    >>> spent_of([Stretch(0, 10, 2), Stretch(5, 10, 2), Stretch(100, 1)]).seconds
    16.0
    """
    every = sorted(stretches, key=lambda one: one.start)
    busy_s, until = 0.0, -math.inf
    for one in every:
        end = one.start + one.seconds
        busy_s += max(0.0, end - max(one.start, until))
        until = max(until, end)
    energies = [one.energy_j for one in every if one.energy_j is not None]
    return Spent(
        seconds=busy_s,
        trial_seconds=math.fsum(one.seconds for one in every),
        gpu_seconds=math.fsum(one.seconds * one.gpus for one in every),
        energy_j=math.fsum(energies) if energies else None,
    )


def in_words(amount: float, unit: BudgetUnit) -> str:
    if unit is BudgetUnit.JOULES:
        return f"{amount / 1e6:.3g} MJ" if amount >= 1e6 else f"{amount / 1e3:.3g} kJ"
    suffix = "GPU-" if unit is BudgetUnit.GPU_SECONDS else ""
    for size, word in ((3600, "h"), (60, "min")):
        if amount >= size:
            return f"{amount / size:.3g} {suffix}{word}"
    return f"{amount:.3g} {suffix}s"

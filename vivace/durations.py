"""How long something runs, as one type: ``20min``, ``30ep``, ``5000steps``, ``1e9tok``.

Read from the command line and from recipes. Standard library only.

>>> Duration.parse("1.5h").seconds, str(Duration.parse("500ba")), str(Duration.parse("37 epochs"))
(5400.0, '500steps', '37ep')
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from vivace.errors import UserError

__all__ = ["Duration", "DurationUnit"]


class DurationUnit(StrEnum):
    """What is counted. The value is how it is written back."""

    SECONDS = "s"
    EPOCHS = "ep"
    STEPS = "steps"
    SAMPLES = "samples"
    TOKENS = "tok"


_SECONDS = {
    "s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hour": 3600, "hours": 3600, "d": 86400, "day": 86400, "days": 86400,
}  # fmt: skip
_COUNTED = {
    "ep": DurationUnit.EPOCHS, "epoch": DurationUnit.EPOCHS, "epochs": DurationUnit.EPOCHS,
    "ba": DurationUnit.STEPS, "batch": DurationUnit.STEPS, "batches": DurationUnit.STEPS,
    "step": DurationUnit.STEPS, "steps": DurationUnit.STEPS,
    "sa": DurationUnit.SAMPLES, "sample": DurationUnit.SAMPLES, "samples": DurationUnit.SAMPLES,
    "tok": DurationUnit.TOKENS, "token": DurationUnit.TOKENS, "tokens": DurationUnit.TOKENS,
}  # fmt: skip
_WRITTEN = re.compile(r"\s*(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)\s*([a-z]+)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Duration:
    """``amount`` of ``unit``; times are kept in seconds."""

    amount: float
    unit: DurationUnit

    @classmethod
    def parse(cls, text: str, option: str = "") -> Duration:
        """Raises a ``UserError`` that begins with ``option`` for anything that is not one number with a unit."""
        found = _WRITTEN.fullmatch(text)
        word = found[2].lower() if found else ""
        where = f"{option} " if option else ""
        if found is None or (word not in _SECONDS and word not in _COUNTED):
            raise UserError(
                f"{where}{text!r} is not a duration", hint="a number with a unit: 90s, 20min, 2h, 30ep, 5000steps"
            )
        amount = float(found[1])
        if not 0 < amount < math.inf:
            raise UserError(f"{where}{text!r} must be above 0")
        if word in _SECONDS:
            return cls(amount * _SECONDS[word], DurationUnit.SECONDS)
        return cls(amount, _COUNTED[word])

    @property
    def seconds(self) -> float | None:
        """None where it is not a time."""
        return self.amount if self.unit is DurationUnit.SECONDS else None

    def __str__(self) -> str:
        """As ``parse`` reads it."""
        if self.unit is DurationUnit.SECONDS:
            for word, size in (("h", 3600), ("min", 60)):
                if self.amount >= size and self.amount % (size / 4) == 0:
                    return f"{self.amount / size:g}{word}"
        return f"{_number(self.amount)}{self.unit}"


def _number(amount: float) -> str:
    """The shortest text that is the same number: 1e9, 2000, 2.5."""
    short = f"{amount:g}".replace("e+0", "e").replace("e+", "e")
    if amount.is_integer() and amount < 1e7:
        return str(int(amount))
    return short if float(short) == amount else repr(amount)

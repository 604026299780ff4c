"""A learning-rate range test: what the process is asked to try, and what it saw (``rates-RANK-PID.json``)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from vivace.protocol.text_enum import TextEnum

__all__ = ["RATES", "RateEnd", "RateTest", "SeenRates", "rates_name"]

RATES = "rates-*.json"


@dataclass(frozen=True)
class RateTest:
    """``steps`` rates from ``lowest`` to ``highest``, the same factor apart; one optimizer step each."""

    lowest: float
    highest: float
    steps: int

    def rate(self, number: int) -> float:
        """
        >>> test = RateTest(1e-3, 10.0, 5)
        >>> [round(test.rate(n), 4) for n in range(5)]
        [0.001, 0.01, 0.1, 1.0, 10.0]
        """
        return self.lowest * (self.highest / self.lowest) ** (number / (self.steps - 1))


class RateEnd(TextEnum):
    """Why the test ended."""

    ALL_TRIED = "all tried"
    DIVERGED = "diverged"
    SCRIPT_ENDED = "the script ended"
    TWO_OPTIMIZERS = "two optimizers"
    NO_RATE = "no rate"
    """The optimizer has no ``lr``."""


@dataclass(frozen=True)
class SeenRates:
    """``losses[n]``: the loss right after the step with ``rates[n]``, by the next forward; ``first_loss``: before all.

    ``own_rates``: of the parameter groups, as the script set them; their ratios are kept.
    """

    end: RateEnd
    rates: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    first_loss: float | None = None
    own_rates: tuple[float, ...] = ()
    optimizer: str = ""
    rank: int = 0

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> SeenRates:
        """Raises ``ValueError`` for anything that ``to_text`` does not write."""
        try:
            fields = dict(json.loads(text))
            lists = {name: tuple(fields.pop(name)) for name in ("rates", "losses", "own_rates")}
            return cls(**{**fields, **lists, "end": RateEnd(fields["end"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a range test: {error}") from None


def rates_name(rank: int, pid: int) -> str:
    return f"rates-{rank}-{pid}.json"

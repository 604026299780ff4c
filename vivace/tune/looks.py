"""When is a proof decided? Each added pair is one more look at the figures, and every look is a chance to be wrong.

A proof looks after the pairs that were asked for, and where it is not decided, after each pair that it adds. Asking 5 %
at every look would prove a gain that is not there in up to 6 % of proofs instead of 2.5 %. So each look asks for more,
by how many pairs it has, whatever was asked for: then a proof that ran out of time and goes on later is covered, too.

The interval of a proof that ends at its first look is the plain one of 95 %: no other look went before it. All others
are as wide as their look asks.

The shares were found by simulation, together with the rule of when to go on (``more_would_help``):
``benchmarks/proof_calibration.py``.
"""

from __future__ import annotations

import math

from vivace.records.proof import Interval
from vivace.tune.comparison import Estimate

__all__ = ["MOST_PAIRS", "SMALLEST_GAIN", "is_proved", "more_would_help", "pairs_needed", "speedup_of"]

MOST_PAIRS = 8  # that a proof adds by itself; --rounds may ask for more
SMALLEST_GAIN = 0.01  # nobody wants more runs for less
_PLAIN = 0.95
_SHARES = {1: 0.996, 2: 0.992, 3: 0.988, 4: 0.985}  # inside the interval of a look with so many pairs
_LATER = 0.982
_PAIRS_TO_GIVE_UP = 3  # with fewer, the noise is known too badly to call a gain hopeless
_FARTHEST = 100  # pairs: nobody will run more


def is_proved(estimate: Estimate, pairs: int, rounds: int) -> bool:
    return estimate.log_ratio > estimate.half_width(_share(pairs, rounds))


def speedup_of(estimate: Estimate, pairs: int, rounds: int) -> Interval:
    """The interval to show; its lower end is above 1 where the gain is proved, and only there."""
    plain = estimate.interval(_PLAIN)
    first_look = pairs == rounds
    if first_look and (plain.low > 1.0) == is_proved(estimate, pairs, rounds):
        return plain
    return estimate.interval(_share(pairs, rounds))


def more_would_help(estimate: Estimate, pairs: int, rounds: int) -> bool:
    """Not decided, and no more pairs are needed than a proof may add."""
    if is_proved(estimate, pairs, rounds) or _is_too_small(estimate):
        return False
    most = max(MOST_PAIRS, rounds)
    return pairs < _PAIRS_TO_GIVE_UP or pairs_needed(estimate, pairs, rounds, most) is not None


def pairs_needed(estimate: Estimate, pairs: int, rounds: int, most: int = _FARTHEST) -> int | None:
    """In all, to prove the gain if it is what it seems to be; None: proved, too small, or more than ``most``."""
    if is_proved(estimate, pairs, rounds) or _is_too_small(estimate):
        return None
    for number in range(pairs + 1, most + 1):
        asked = rounds if number <= MOST_PAIRS else number  # so many must be asked for, and are looked at once
        if is_proved(estimate.after(number), number, asked):
            return number
    return None


def _is_too_small(estimate: Estimate) -> bool:
    return estimate.log_ratio < math.log1p(SMALLEST_GAIN)


def _share(pairs: int, rounds: int) -> float:
    only_look = pairs >= rounds >= MOST_PAIRS
    return _PLAIN if only_look else _SHARES.get(pairs, _LATER)

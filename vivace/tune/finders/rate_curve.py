"""From the losses of a range test to suggestions. Pure functions over rates that were tried.

The smoothing is an exponential mean with bias correction (beta 0.98 over 500 steps; fewer steps forget faster, so that
the same share of the range is averaged), run from both ends: run forwards only, it lags behind by most of a decade.
What diverged is cut off at twice the first loss, or its trace would reach back to rates that were fine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Suggestions", "smoothed", "suggest"]

_BETA, _STEPS_OF_BETA = 0.98, 500
_WORTH = 0.01  # of the first loss: a curve that falls by less shows nothing
_HIGHEST = 2.0  # times the first loss


@dataclass(frozen=True)
class Suggestions:
    steepest: float | None = None
    tenth_of_best: float | None = None
    diverges: float | None = None
    suggested: float | None = None
    """Half a decade below the rate with the lowest loss: the middle between that one, at the edge of what is stable,
    and its tenth, which is often slow (benchmarks/find_lr.py)."""


def smoothed(losses: Sequence[float], first: float) -> list[float]:
    """Of the same length; not above twice ``first`` (for losses above 0)."""
    highest = first + (_HIGHEST - 1) * abs(first)
    cut = [min(loss, highest) if math.isfinite(loss) else highest for loss in losses]
    beta = _BETA ** (_STEPS_OF_BETA / max(len(cut), 50))
    forwards, backwards = _mean(cut, beta), _mean(cut[::-1], beta)[::-1]
    return [(one + other) / 2 for one, other in zip(forwards, backwards, strict=True)]


def _mean(values: Sequence[float], beta: float) -> list[float]:
    mean, found = 0.0, []
    for number, value in enumerate(values, 1):
        mean = beta * mean + (1 - beta) * value
        found.append(mean / (1 - beta**number))
    return found


def suggest(rates: Sequence[float], losses: Sequence[float], first: float) -> Suggestions:
    """``losses``: as they were seen, after the step with each of the ``rates``; ``first``: before all of them."""
    if len(rates) < 3:
        return Suggestions()
    curve = smoothed(losses, first)
    best = min(range(len(curve)), key=curve.__getitem__)
    diverges = next(
        (rate for rate, loss in zip(rates[best:], losses[best:], strict=True) if not loss <= first), None
    )  # NaN too
    if max(curve[: best + 1]) - curve[best] < _WORTH * abs(first) or best < 2:
        return Suggestions(diverges=diverges)
    falls = [curve[n + 1] - curve[n - 1] for n in range(1, best)]
    steepest = rates[1 + min(range(len(falls)), key=falls.__getitem__)]
    return Suggestions(steepest, _below(rates, rates[best], 10), diverges, _below(rates, rates[best], math.sqrt(10)))


def _below(rates: Sequence[float], best: float, times: float) -> float | None:
    """The largest that was tried and is at most a part of ``best``."""
    return max((rate for rate in rates if rate <= best / times * (1 + 1e-9)), default=None)

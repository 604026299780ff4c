"""Where some runs never arrived: the ratios that an exact rank test does not reject.

Shift the logarithms of one side by what is supposed, censor both sides at the same point (the earlier of their limits;
a run that never arrives is later than all), and the two are samples of one distribution. Then every division of the
pooled ranks into two sides is as likely as any other (Gehan 1965, Biometrika 52: Wilcoxon's test with censored values).
The interval holds the shifts for which the observed sum of ranks is not among the rare ones; the estimate is the middle
of the shifts for which it is in the middle (Hodges and Lehmann 1963).
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from vivace.race.statistics.sample import Estimate, Sample

__all__ = ["ratio_by_ranks"]

_BEYOND = 1.0  # of a shift beyond all others, in logarithms: any number would do

Floats = NDArray[np.float64]


def ratio_by_ranks(over: Sample, under: Sample, share: float) -> Estimate:
    """``over`` / ``under``, in the median of a distribution that both share but for this ratio."""
    edges = _edges(over, under)
    if not len(edges):
        return Estimate(math.nan, 0.0, math.inf)
    shifts = np.concatenate([[edges[0] - _BEYOND], (edges[1:] + edges[:-1]) / 2, [edges[-1] + _BEYOND]])
    below, above = _tails(over, under, shifts)
    kept = np.flatnonzero(np.minimum(below, above) > (1 - share) / 2)
    low = edges[kept[0] - 1] if len(kept) and kept[0] > 0 else -math.inf
    high = edges[kept[-1]] if len(kept) and kept[-1] < len(edges) else math.inf
    return Estimate(math.exp(_middle(edges, below, above)), math.exp(low), math.exp(high))


def _edges(over: Sample, under: Sample) -> Floats:
    """The shifts of ``under`` at which the order of two runs changes, or one passes the common end."""
    x, y = (logs[np.isfinite(logs)] for logs in (np.array(over.logs), np.array(under.logs)))
    differences = [(x[:, None] - y[None, :]).ravel()]
    if math.isfinite(under.log_limit):
        differences.append(x - under.log_limit)
    if math.isfinite(over.log_limit):
        differences.append(over.log_limit - y)
    return np.unique(np.concatenate(differences))


def _tails(over: Sample, under: Sample, shifts: Floats) -> tuple[Floats, Floats]:
    """For each shift, how likely a sum of ranks of ``under`` as small, and as large, as the observed one is."""
    values = np.concatenate(
        [np.broadcast_to(over.logs, (len(shifts), len(over))), np.array(under.logs)[None, :] + shifts[:, None]], axis=1
    )
    ends = np.minimum(over.log_limit, under.log_limit + shifts)[:, None]
    doubled = _doubled_ranks(np.where(values <= ends, values, np.inf))
    sums = doubled[:, len(over) :].sum(axis=1)
    below, above = np.empty(len(shifts)), np.empty(len(shifts))
    for number, ranks in enumerate(doubled):
        cumulative = _cumulative(tuple(sorted(ranks.tolist())), len(under))
        below[number] = cumulative[sums[number]]
        above[number] = 1.0 - (cumulative[sums[number] - 1] if sums[number] > 0 else 0.0)
    return below, above


def _doubled_ranks(values: Floats) -> NDArray[np.int64]:
    """Twice the mid-ranks along each row: whole numbers, whatever is tied."""
    smaller = (values[:, None, :] < values[:, :, None]).sum(axis=2)
    equal = (values[:, None, :] == values[:, :, None]).sum(axis=2)
    return 2 * smaller + equal + 1


@cache
def _cumulative(doubled: tuple[int, ...], chosen: int) -> Floats:
    """P(sum of ``chosen`` of these ranks <= s) for every s: counted exactly, by adding one rank after the other."""
    total = sum(doubled)
    ways = np.zeros((chosen + 1, total + 1))
    ways[0, 0] = 1.0
    for rank in doubled:
        ways[1:, rank:] += ways[:-1, : total + 1 - rank].copy()
    return np.cumsum(ways[chosen]) / math.comb(len(doubled), chosen)


def _middle(edges: Floats, below: Floats, above: Floats) -> float:
    """The shift at which the observed sum goes from the one half to the other."""
    rising = below >= above  # the sum is large, so its upper tail is small
    first = int(np.argmax(rising)) if rising.any() else len(edges)
    last = len(rising) - 1 - int(np.argmax(~rising[::-1])) if not rising.all() else -1
    ends = [edges[min(max(place, 0), len(edges) - 1)] for place in (first - 1, last)]
    return float(sum(ends) / 2)

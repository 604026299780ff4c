"""How much faster is one job than another, and what may chance have done? All of it on logarithms of speeds.

A whole run may be slow or fast by chance, whatever its own steps say. So runs are the unit: their scatter gives the
standard error of a ratio, with Student's t for the few runs there are. The steps of the runs only give a floor: two
runs that happen to agree must not leave an interval without width.

What is taken out of the scatter is fixed by the number of pairs, before any figure is seen:

- one pair: nothing. The noise is that of the unchanged job, over the search and the pair.
- two pairs: the machine may be faster or slower in the proof than it was in the search.
- three pairs and more: and it may drift along a straight line during the proof.

From two pairs on, the tuned job may be noisier or steadier than the unchanged one: each side has a variance of its own,
and the degrees of freedom are those of Welch and Satterthwaite. One pair has to take the two for alike.

``benchmarks/proof_calibration.py`` shows how often the intervals hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

from vivace.records.measurement import Measurement
from vivace.records.proof import Interval
from vivace.tune.student import t_quantile

__all__ = [
    "Estimate", "Pair", "baseline_first", "by_pairs", "by_single_runs", "ratio_of", "speed", "stands_out", "step_error",
]  # fmt: skip

_INSIDE = 0.95
_BLOCK = 5  # neighbouring steps are alike
_PAIRS_FOR_A_LINE = 3
Pair = tuple[Measurement, Measurement]


@dataclass(frozen=True)
class Estimate:
    """The logarithm of a ratio of speeds, and how uncertain it is."""

    log_ratio: float
    run_sd: float
    """Standard deviation of the log speed of one run, the mean square of both sides'."""
    leverage: float
    """Standard error of the log ratio, for a ``run_sd`` of 1."""
    freedom: float
    """Degrees of freedom of ``run_sd``."""
    step_error: float = 0.0
    """Standard error by the scatter of the steps alone."""

    def half_width(self, inside: float = _INSIDE) -> float:
        by_runs = t_quantile(inside, self.freedom) * self.run_sd * self.leverage
        by_steps = NormalDist().inv_cdf((1 + inside) / 2) * self.step_error
        return max(by_runs, by_steps)

    def interval(self, inside: float = _INSIDE) -> Interval:
        half = self.half_width(inside)
        low, high = math.exp(self.log_ratio - half), math.exp(self.log_ratio + half)
        return Interval(median=math.exp(self.log_ratio), low=low, high=high)

    def after(self, pairs: int, unchanged: int = 2) -> Estimate:
        """What the same figures would be worth over more pairs."""
        return Estimate(self.log_ratio, self.run_sd, _leverage(pairs), _freedom(pairs, unchanged))


def speed(m: Measurement) -> float:
    """Samples per second; steps per second where samples cannot be counted."""
    if m.samples_per_s is not None:
        return m.samples_per_s
    assert m.step_ms is not None
    return 1e3 / m.step_ms.mean


def ratio_of(before: Measurement, after: Measurement) -> float:
    return speed(after) / speed(before)


def stands_out(before: Measurement, after: Measurement, noise: float) -> bool:
    """One run each: faster by more than ``noise``, and by more than the scatter of the steps. No proof, a reason to go
    on with it."""
    log_ratio = math.log(ratio_of(before, after))
    by_steps = NormalDist().inv_cdf((1 + _INSIDE) / 2) * math.hypot(step_error(before), step_error(after))
    return log_ratio > max(math.log1p(noise), by_steps)


def baseline_first(number: int) -> bool:
    """Pairs alternate: the baseline runs first in the first pair, second in the second."""
    return number % 2 == 0


def by_pairs(pairs: Sequence[Pair], unchanged: Sequence[Measurement]) -> Estimate:
    """The speed of the second of each pair over the first's. ``unchanged``: the runs of the baseline in the search.

    The pairs are in the order they ran, each with its baseline first or second as ``baseline_first`` says.
    """
    logs = _logs([run for number, pair in enumerate(pairs) for run in (pair if baseline_first(number) else pair[::-1])])
    of_the_search = _logs(unchanged)
    if len(pairs) == 1:
        return _by_one_pair(pairs[0], of_the_search)
    design = _design(len(pairs))
    fitted = _least_squares(len(pairs)) @ logs
    squares, tuned = np.square(logs - design @ fitted), design[:, 1] == 1.0
    of_before, of_after = _freedoms(len(pairs), len(unchanged))
    before = (float(squares[~tuned].sum()) + _squares(of_the_search)) / of_before
    after = float(squares[tuned].sum()) / of_after
    by_steps = math.hypot(*(step_error(run) for pair in pairs for run in pair)) / len(pairs)
    freedom = _satterthwaite(before, of_before, after, of_after)
    return Estimate(float(fitted[1]), math.sqrt((before + after) / 2), _leverage(len(pairs)), freedom, by_steps)


def _by_one_pair(pair: Pair, of_the_search: np.ndarray) -> Estimate:
    before, after = _logs(pair)
    reruns = np.append(of_the_search, before)
    assert len(reruns) > 1, "one pair does not show how much runs differ"
    run_sd = float(np.std(reruns, ddof=1))
    return Estimate(after - before, run_sd, _leverage(1), len(reruns) - 1, math.hypot(*map(step_error, pair)))


def by_single_runs(
    before: Sequence[Measurement], after: Sequence[Measurement], reruns: Sequence[Sequence[Measurement]]
) -> Estimate:
    """Runs that were not taken in turn. ``reruns``: groups of runs of one job each, from all of the session, so that
    their scatter holds its drift, too."""
    groups = [_logs(runs) for runs in reruns if len(runs) > 1]
    freedom = sum(len(group) - 1 for group in groups)
    assert freedom, "no job was run twice"
    run_sd = math.sqrt(sum(map(_squares, groups)) / freedom)
    leverage = math.sqrt(1 / len(before) + 1 / len(after))
    by_steps = math.hypot(*(step_error(m) / len(side) for side in (before, after) for m in side))
    log_ratio = float(_logs(after).mean() - _logs(before).mean())
    return Estimate(log_ratio, run_sd, leverage, freedom, by_steps)


@cache
def _design(pairs: int) -> np.ndarray:
    """A row a run, in the order they ran: the level, what the tuned job adds, and the line of a drift."""
    tuned = [side for number in range(pairs) for side in ((0.0, 1.0) if baseline_first(number) else (1.0, 0.0))]
    columns = [np.ones(2 * pairs), np.array(tuned)]
    if pairs >= _PAIRS_FOR_A_LINE:
        columns.append(np.arange(2 * pairs) - pairs + 0.5)
    return np.stack(columns, axis=1)


@cache
def _least_squares(pairs: int) -> np.ndarray:
    return np.asarray(np.linalg.pinv(_design(pairs)))


@cache
def _leverage(pairs: int) -> float:
    if pairs == 1:
        return math.sqrt(2)
    return float(np.linalg.norm(_least_squares(pairs)[1]))


def _freedom(pairs: int, unchanged: int) -> float:
    """Of as many pairs, if both sides are as noisy."""
    if pairs == 1:
        return unchanged
    of_before, of_after = _freedoms(pairs, unchanged)
    return _satterthwaite(1.0, of_before, 1.0, of_after)


def _freedoms(pairs: int, unchanged: int) -> tuple[float, float]:
    """Of the unchanged and of the tuned runs. Each side pays for its level, and for half of the line."""
    of_the_line = (_design(pairs).shape[1] - 2) / 2
    return pairs - 1 - of_the_line + max(unchanged - 1, 0), pairs - 1 - of_the_line


def _satterthwaite(before: float, of_before: float, after: float, of_after: float) -> float:
    """Degrees of freedom of a sum of two variances. Satterthwaite, Biometrics Bulletin 2 (1946)."""
    if before + after == 0:
        return of_before + of_after
    return (before + after) ** 2 / (before**2 / of_before + after**2 / of_after)


def _logs(runs: Sequence[Measurement]) -> np.ndarray:
    return np.log([speed(m) for m in runs])


def _squares(logs: np.ndarray) -> float:
    """About their mean."""
    return float(np.square(logs - logs.mean()).sum()) if len(logs) else 0.0


def step_error(m: Measurement) -> float:
    """Standard error of the logarithm of a run's mean step, from the means of overlapping blocks of steps.

    Overlapping batch means: Meketon and Schmeiser, Winter Simulation Conference (1984).
    """
    steps = np.asarray(m.series_ms.get("step", ()), dtype=float)
    count = len(steps)
    if count < 2:
        return 0.0
    block = _BLOCK if count > _BLOCK else 1
    sums = np.concatenate(([0.0], np.cumsum(steps)))
    mean = float(sums[-1]) / count
    off = (sums[block:] - sums[:-block]) / block - mean
    return math.sqrt(block * float(off @ off) / ((count - block + 1) * (count - block))) / mean

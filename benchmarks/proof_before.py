"""The interval of a proof as it was before its calibration, kept for the comparison in ``proof_calibration.py`` only.

It resamples rounds and blocks of steps, and spans the ratios of all rounds. With three rounds or more the noise of
whole runs is left out; with fewer it is drawn from the runs of the unchanged job. More rounds follow, up to three,
while the gain is larger than the noise and not sure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vivace.records.measurement import Measurement
from vivace.records.proof import Interval
from vivace.tune.comparison import Pair, ratio_of, speed

__all__ = ["decided_before", "speedup_before"]

_RESAMPLES = 1000
_BLOCK = 5
_ENOUGH_ROUNDS = 3


def speedup_before(pairs: Sequence[Pair], unchanged: Sequence[Measurement]) -> Interval:
    noise = 0.0
    if len(pairs) < _ENOUGH_ROUNDS:
        noise = float(np.std(np.log([speed(m) for m in (*unchanged, *(before for before, _ in pairs))]), ddof=1))
    return _compare(pairs, noise)


def decided_before(speedup: Interval, pairs: int, noise: float) -> bool:
    return pairs >= _ENOUGH_ROUNDS or not (speedup.low <= 1.0 and speedup.median > 1.0 + noise)


def _compare(pairs: Sequence[Pair], noise: float) -> Interval:
    ratios = np.array([ratio_of(before, after) for before, after in pairs])
    generator = np.random.default_rng(0)
    runs = [m for pair in pairs for m in pair]
    drawn = [_resampled_log_mean(m, generator) + noise * generator.standard_normal(_RESAMPLES) for m in runs]
    wobble = np.stack([drawn[2 * i] - drawn[2 * i + 1] for i in range(len(pairs))])  # rounds × resamples
    chosen = generator.integers(len(pairs), size=(len(pairs), _RESAMPLES))
    logs = np.log(ratios)[chosen] + np.take_along_axis(wobble, chosen, axis=0)
    low, high = np.percentile(np.exp(logs.mean(axis=0)), [2.5, 97.5])
    median = float(np.median(ratios))
    return Interval(median=median, low=min(float(low), *ratios, median), high=max(float(high), *ratios, median))


def _resampled_log_mean(m: Measurement, generator: np.random.Generator) -> np.ndarray:
    steps = np.asarray(m.series_ms.get("step", ()), dtype=float)
    block = min(_BLOCK, len(steps))
    blocks = -(-len(steps) // block)
    starts = generator.integers(0, len(steps) - block + 1, size=(_RESAMPLES, blocks))
    means = steps[starts[:, :, None] + np.arange(block)].mean(axis=(1, 2))
    return np.log(means / steps.mean())

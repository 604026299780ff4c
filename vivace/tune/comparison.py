"""How much faster is one run than another, and how sure is that? Ratios with a 95 % interval from paired runs.

Two sources of chance are resampled: which rounds were run, and which steps (in blocks: neighbouring steps are alike).
The interval also spans the ratios of all rounds: three rounds are too few for a resampling alone to be trusted.

A run as a whole may be slow or fast, too, whatever its steps say. With fewer than three rounds, or runs that were not
taken in turn, that chance does not show in the ratios: it is drawn from how far runs of the unchanged job lie apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vivace.records.measurement import Measurement
from vivace.records.proof import Interval

__all__ = ["Pair", "compare", "ratio_of", "run_noise", "speed"]

_RESAMPLES = 1000
_BLOCK = 5
Pair = tuple[Measurement, Measurement]


def speed(m: Measurement) -> float:
    """Samples per second; steps per second where samples cannot be counted."""
    if m.samples_per_s is not None:
        return m.samples_per_s
    assert m.step_ms is not None
    return 1e3 / m.step_ms.mean


def ratio_of(before: Measurement, after: Measurement) -> float:
    return speed(after) / speed(before)


def run_noise(runs: Sequence[Measurement]) -> float:
    """How far runs of one and the same job lie apart: the standard deviation of the logarithms of their speeds."""
    return float(np.std(np.log([speed(m) for m in runs]), ddof=1)) if len(runs) > 1 else 0.0


def compare(pairs: Sequence[Pair], noise: float = 0.0, seed: int = 0) -> Interval:
    """The speed of the second of each pair over the first's. ``noise``: of one run as a whole (``run_noise``)."""
    ratios = np.array([ratio_of(before, after) for before, after in pairs])
    generator = np.random.default_rng(seed)
    runs = {id(m): m for pair in pairs for m in pair}  # one that is in several pairs has one fate
    drawn = {key: _resampled_log_mean(m, generator) + noise * _normal(generator) for key, m in runs.items()}
    wobble = np.stack([drawn[id(before)] - drawn[id(after)] for before, after in pairs])  # rounds × resamples
    chosen = generator.integers(len(pairs), size=(len(pairs), _RESAMPLES))
    logs = np.log(ratios)[chosen] + np.take_along_axis(wobble, chosen, axis=0)
    low, high = np.percentile(np.exp(logs.mean(axis=0)), [2.5, 97.5])
    median = float(np.median(ratios))
    return Interval(median=median, low=min(float(low), *ratios, median), high=max(float(high), *ratios, median))


def _normal(generator: np.random.Generator) -> np.ndarray:
    return generator.standard_normal(_RESAMPLES)


def _resampled_log_mean(m: Measurement, generator: np.random.Generator) -> np.ndarray:
    """How far chance in the choice of steps may move the logarithm of a run's mean step."""
    steps = np.asarray(m.series_ms.get("step", ()), dtype=float)
    if len(steps) < 2:
        return np.zeros(_RESAMPLES)
    block = min(_BLOCK, len(steps))
    blocks = -(-len(steps) // block)
    starts = generator.integers(0, len(steps) - block + 1, size=(_RESAMPLES, blocks))
    means = steps[starts[:, :, None] + np.arange(block)].mean(axis=(1, 2))
    return np.log(means / steps.mean())

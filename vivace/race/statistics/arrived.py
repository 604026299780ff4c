"""Where every run arrived: means of the logarithms, with Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vivace.race.statistics.sample import Estimate, Sample
from vivace.tune.student import t_quantile

__all__ = ["mean_of", "ratio_of_means"]


def mean_of(sample: Sample, share: float) -> Estimate:
    """The geometric mean; unbounded for one run."""
    mean, variance = _moments(sample.logs)
    if len(sample) < 2:
        return Estimate(math.exp(mean), 0.0, math.inf)
    half = t_quantile(share, len(sample) - 1) * math.sqrt(variance / len(sample))
    return Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def ratio_of_means(over: Sample, under: Sample, share: float) -> Estimate:
    """``over`` / ``under`` by Welch's t: the two may scatter differently.

    >>> a, b = Sample((2.0, 2.2, 1.8)), Sample((1.0, 1.1, 0.9))
    >>> ratio = ratio_of_means(a, b, 0.95)
    >>> round(ratio.value, 3), round(ratio.low, 2), round(ratio.high, 2)
    (2.0, 1.59, 2.51)
    """
    (mean_over, variance_over), (mean_under, variance_under) = _moments(over.logs), _moments(under.logs)
    shift = mean_over - mean_under
    if min(len(over), len(under)) < 2:
        return Estimate(math.exp(shift), 0.0, math.inf)
    parts = [variance_over / len(over), variance_under / len(under)]
    variance = sum(parts)
    if variance == 0.0:
        return Estimate(math.exp(shift), math.exp(shift), math.exp(shift))
    freedom = variance**2 / sum(
        part**2 / (len(sample) - 1) for part, sample in zip(parts, (over, under), strict=True)
    )  # Welch (1947)
    half = t_quantile(share, max(1.0, freedom)) * math.sqrt(variance)
    return Estimate(math.exp(shift), math.exp(shift - half), math.exp(shift + half))


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and variance; of one value the variance is 0."""
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)

"""Losses and gradient norms of tuned runs against the baseline's own runs with other seeds.

*Moved* is how far the tuned losses lie from the baseline's with the same seed; the *band* is how far two baselines with
different seeds lie from each other. Training amplifies rounding: after some steps a run that only rounds differently
lies as far away as another seed's does, and by chance somewhat farther. So it may move by half as much again as the
band, but its losses must not end up higher than the baselines' own do. They end at the median of their second half: a
spike here or there, of which every unstable training has some, is not where they end.

This test needs no agreement of the two runs, and has little power for that: +5 % at every step of a noisy training
passes more often than not. It is what is left where batches or random numbers differ, or rounding has grown.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vivace.records.measurement import Measurement
from vivace.records.proof import HarmOutcome, HarmTest, HarmTestKind
from vivace.tune.comparison import Pair

__all__ = ["Band", "Runs", "compare_with_band", "gather_band"]

_CHANCE = 1.5  # two distances between unrelated runs differ by so much easily
_END_CHANCE = 2.5  # standard errors of a mean: two, as those of a median are a quarter larger
_NORM_CHANCE = 2.0  # norms are taken at fewer steps, and jump more
_ROUNDING = 2**-8  # of the losses' size: one unit in the last place of bf16. Nothing finer is asked of anybody
_NORM_ROUNDING = 0.02  # of the norms' size
_ALL_THE_SAME = 1e-3  # of the norms' size
_TOLERANCE = 0.02  # of the losses' size, where reruns of the baseline do not differ at all

Runs = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Band:
    """How far the tuned runs moved, and how far another seed moves the baseline: losses, and gradient norms."""

    moved: float
    band: float | None
    norm_moved: float | None
    norm_band: float | None
    norm_size: float | None


def gather_band(
    rounds: Sequence[Pair], before: Runs, after: Runs, others: Runs, more_baselines: Sequence[Measurement]
) -> Band:
    """``others``: losses of baselines with further seeds. ``more_baselines``: runs whose norms count, too."""
    norm_moved, norm_band, norm_size = _norms(rounds, more_baselines)
    return Band(
        moved=float(np.median([_distance(b, a) for b, a in zip(before, after, strict=True)])),
        band=_band([*before, *others]),
        norm_moved=norm_moved,
        norm_band=norm_band,
        norm_size=norm_size,
    )


def compare_with_band(found: Band, before: Runs, after: Runs, others: Runs) -> HarmTest:
    inside, says = _verdict(found, before, after, others)
    outcome = HarmOutcome.PASSED if inside else HarmOutcome.FAILED
    return HarmTest(kind=HarmTestKind.SEED_BAND, outcome=outcome, steps=len(before[0]), pairs=len(before), says=says)


def _verdict(found: Band, before: Runs, after: Runs, others: Runs) -> tuple[bool, str]:
    moved, band, size = found.moved, found.band, _size(before)
    if not band:
        why = "there is no other seed to compare with" if band is None else "the baseline's reruns do not differ"
        return moved <= _TOLERANCE * size, f"{why}; the losses moved by {moved / size:.2%} of their size"
    says = f"losses move by {moved:.3g} from the baseline's with the same seed; another seed moves them by {band:.3g}"
    higher, span = _ends_higher(before, after, others)
    by_chance = _END_CHANCE * band / math.sqrt(len(after) * (len(after[0]) - len(after[0]) // 2))
    if higher > max(span, by_chance, _ROUNDING * size):
        return False, f"{says}, but they end higher by {higher:.3g} (baselines differ by {span:.3g} there)"
    if found.norm_moved is not None and found.norm_band is not None and found.norm_size is not None:
        says += f" (gradient norms: {found.norm_moved:.3g} and {found.norm_band:.3g})"
        if found.norm_moved > max(_NORM_CHANCE * found.norm_band, _NORM_ROUNDING * found.norm_size):
            return False, says
    return moved <= max(_CHANCE * band, _ROUNDING * size), says


def _ends_higher(before: Runs, after: Runs, others: Runs) -> tuple[float, float]:
    """How much higher the tuned losses are over the second half of the steps, and how far baselines differ there."""
    half = len(before[0]) // 2
    ends = [float(np.median(b[half:])) for b in before]
    tuned = [float(np.median(a[half:])) for a in after]
    all_ends = [*ends, *(float(np.median(o[half:])) for o in others)]
    return float(np.mean(tuned) - np.mean(ends)), max(all_ends) - min(all_ends)


def _size(runs: Runs) -> float:
    return float(np.sqrt(np.mean(np.square(runs)))) or 1.0


def _distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Root mean square over the steps."""
    return float(np.sqrt(np.mean(np.square(np.subtract(first, second)))))


def _band(runs: Runs) -> float | None:
    distances = [_distance(a, b) for a, b in itertools.combinations(runs, 2)]
    return float(np.median(distances)) if distances else None


def _norms(rounds: Sequence[Pair], more: Sequence[Measurement]) -> tuple[float | None, float | None, float | None]:
    """The same two figures for the gradient norms, over the steps where all runs have them; and the norms' size."""
    series: list[Mapping[int, float]] = [m.gradient_norms for pair in rounds for m in pair]
    more = [m for m in more if m.gradient_norms]
    series += [m.gradient_norms for m in more]
    common = sorted(set.intersection(*(set(s) for s in series))) if series else []
    if not common:
        return None, None, None
    rows = [[s[step] for step in common] for s in series]
    if not np.isfinite(rows).all():
        return None, None, None
    if np.ptp(rows) <= _ALL_THE_SAME * _size(rows):  # clipped: they say nothing
        return None, None, None
    moved = float(np.median([_distance(rows[2 * i], rows[2 * i + 1]) for i in range(len(rounds))]))
    baselines = [*rows[: 2 * len(rounds) : 2], *rows[2 * len(rounds) :]]
    return moved, _band(baselines), _size(baselines)

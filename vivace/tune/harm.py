"""Does a tuned job still train the same? Losses and gradient norms against the baseline's own reruns.

Every round has its own seed, shared by its baseline and its tuned run. *Moved* is how far the tuned losses lie from the
baseline's with the same seed; the *band* is how far two baselines with different seeds lie from each other. A change
that only rounds differently moves the losses less than another seed would.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vivace.records.measurement import Measurement
from vivace.records.proof import Harm

__all__ = ["judge"]

_TOLERANCE = 0.02  # of the losses' size, where reruns of the baseline do not differ at all
_FEWEST_STEPS = 5

Pair = tuple[Measurement, Measurement]


def judge(pairs: Sequence[Pair], rerun: Pair | None, exact: bool) -> Harm:
    """``rerun``: the baseline twice with the same seed, to know whether it repeats itself.

    ``exact``: all practices promise the same numbers. Then a baseline that repeats itself must be repeated.
    """
    before = [_finite(m.trajectory) for m, _ in pairs]
    after = [_finite(m.trajectory) for _, m in pairs]
    steps = min((len(t) for t in (*before, *after)), default=0)
    if steps < _FEWEST_STEPS:
        return Harm(verdict="not comparable", says="the script shows too few losses to compare")
    if any(not all(map(math.isfinite, t)) and all(map(math.isfinite, b)) for b, t in zip(before, after, strict=True)):
        return Harm(verdict="outside the band", steps=steps, rounds=len(pairs), says="a loss became NaN or infinite")
    moved = float(np.median([_distance(b[:steps], t[:steps]) for b, t in zip(before, after, strict=True)]))
    band = _band([b[:steps] for b in before])
    norm_moved, norm_band = _norms(pairs)
    facts: dict[str, Any] = {
        "moved": moved, "band": band, "norm_moved": norm_moved, "norm_band": norm_band, "steps": steps,
        "rounds": len(pairs),
    }  # fmt: skip
    repeats = rerun is not None and _same(*(_finite(m.trajectory) for m in rerun))
    if moved == 0:
        return Harm(verdict="same losses", says=f"all {steps} losses are the same, bit for bit", **facts)
    if exact and repeats:
        says = "the losses should be the same and are not"
        if band is not None and moved <= band:
            says = f"the losses differ ({moved:.3g}), by less than other seeds' ({band:.3g}): other random draws"
            return Harm(verdict="inside the band", says=says, **facts)
        return Harm(verdict="outside the band", says=says, **facts)
    return _by_band(facts, float(np.sqrt(np.mean(np.square(before[0][:steps])))))


def _by_band(facts: dict[str, Any], size: float) -> Harm:
    moved, band, norm_moved, norm_band = (facts[k] for k in ("moved", "band", "norm_moved", "norm_band"))
    if not band:
        inside = moved <= _TOLERANCE * size
        says = f"the baseline's reruns do not differ; the losses moved by {moved / size:.2%} of their size"
        return Harm(verdict="inside the band" if inside else "outside the band", says=says, **facts)
    inside = moved <= band and (norm_moved is None or norm_band is None or norm_moved <= norm_band)
    says = f"losses move by {moved:.3g} from the baseline's with the same seed; another seed moves them by {band:.3g}"
    if norm_moved is not None and norm_band is not None:
        says += f" (gradient norms: {norm_moved:.3g} and {norm_band:.3g})"
    return Harm(verdict="inside the band" if inside else "outside the band", says=says, **facts)


def _finite(trajectory: Sequence[float | None]) -> list[float]:
    """Up to the first step without a loss."""
    return [float(loss) for loss in itertools.takewhile(lambda loss: loss is not None, trajectory)]  # type: ignore[arg-type]


def _same(first: Sequence[float], second: Sequence[float]) -> bool:
    steps = min(len(first), len(second))
    return steps > 0 and list(first[:steps]) == list(second[:steps])


def _distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Root mean square over the steps."""
    return float(np.sqrt(np.mean(np.square(np.subtract(first, second)))))


def _band(runs: Sequence[Sequence[float]]) -> float | None:
    distances = [_distance(a, b) for a, b in itertools.combinations(runs, 2)]
    return float(np.median(distances)) if distances else None


def _norms(pairs: Sequence[Pair]) -> tuple[float | None, float | None]:
    """The same two figures for the gradient norms, over the steps where all runs have them."""
    series: list[Mapping[int, float]] = [m.gradient_norms for pair in pairs for m in pair]
    common = sorted(set.intersection(*(set(s) for s in series))) if series else []
    if not common:
        return None, None
    rows = [[s[step] for step in common] for s in series]
    if not np.isfinite(rows).all():
        return None, None
    moved = float(np.median([_distance(rows[2 * i], rows[2 * i + 1]) for i in range(len(pairs))]))
    return moved, _band(rows[::2])

"""Does a tuned job still train the same? Losses and gradient norms against the baseline's own reruns.

Every round has its own seed, shared by its baseline and its tuned run; the search's baselines have one more, so there
is a band from the first round on, and where the search ran the same set, one more pair to compare.

*Moved* is how far the tuned losses lie from the baseline's with the same seed; the *band* is how far two baselines with
different seeds lie from each other. Training amplifies rounding: after some steps a run that only rounds differently
lies as far away as another seed's does, and by chance somewhat farther. So it may move by half as much again as the
band, but its losses must not end up higher than the baselines' own do. They end at the median of their second half: a
spike here or there, of which every unstable training has some, is not where they end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vivace.records.measurement import Measurement
from vivace.records.proof import Harm
from vivace.tune.comparison import Pair

__all__ = ["judge"]

_CHANCE = 1.5  # two distances between unrelated runs differ by so much easily
_END_CHANCE = 2.5  # standard errors of a mean: two, as those of a median are a quarter larger
_NORM_CHANCE = 2.0  # norms are taken at fewer steps, and jump more
_ROUNDING = 2**-8  # of the losses' size: one unit in the last place of bf16. Nothing finer is asked of anybody
_NORM_ROUNDING = 0.02  # of the norms' size
_ALL_THE_SAME = 1e-3  # of the norms' size
_TOLERANCE = 0.02  # of the losses' size, where reruns of the baseline do not differ at all
_FEWEST_STEPS = 5

Runs = Sequence[Sequence[float]]


def judge(
    rounds: Sequence[Pair],
    rerun: Pair | None,
    exact: bool,
    more_baselines: Sequence[Measurement] = (),
    more_pairs: Sequence[Pair] = (),
) -> Harm:
    """``rerun``: the baseline twice with the same seed, to know whether it repeats itself.

    ``exact``: all practices promise the same losses to the bit. Then a baseline that repeats itself must be repeated.
    ``more_baselines`` have other seeds than the pairs, and widen what the band rests on. ``more_pairs`` are no rounds,
    and need no gradient norms; their losses count like those of the rounds.
    """
    pairs = [
        *rounds,
        *(pair for pair in more_pairs if all(len(_until_none(m.trajectory)) >= _FEWEST_STEPS for m in pair)),
    ]
    before = [_until_none(m.trajectory) for m, _ in pairs]
    after = [_until_none(m.trajectory) for _, m in pairs]
    more_baselines = [m for m in more_baselines if _can_be_compared(m)]
    others = [_until_none(m.trajectory) for m in more_baselines]
    steps = min((len(t) for t in (*before, *after, *others)), default=0)
    if steps < _FEWEST_STEPS:
        return Harm(verdict="not comparable", says="the script shows too few losses to compare")
    if not all(map(_is_finite, before)):
        return Harm(verdict="not comparable", says="the script's own losses are not finite, without any practice")
    if not all(map(_is_finite, after)):
        return Harm(
            verdict="outside the band", steps=steps, rounds=len(rounds), seeds=len(pairs),
            says="a loss became NaN or infinite",
        )  # fmt: skip
    before, after, others = ([run[:steps] for run in runs] for runs in (before, after, others))
    facts = _facts(rounds, before, after, others, [*more_baselines, *(before for before, _ in more_pairs)])
    if before == after:
        return Harm(verdict="same losses", says=f"all {steps} losses are the same, bit for bit", **facts)
    inside, says = _verdict(facts, before, after, others)
    repeats = rerun is not None and _same(*(_until_none(m.trajectory) for m in rerun))
    if exact and repeats:
        inside, says = False, f"the losses should be the same, as the baseline's are when it runs again; {says}"
    return Harm(verdict="inside the band" if inside else "outside the band", says=says, **facts)


def _facts(
    rounds: Sequence[Pair], before: Runs, after: Runs, others: Runs, more_baselines: Sequence[Measurement]
) -> dict[str, Any]:
    norm_moved, norm_band, norm_size = _norms(rounds, more_baselines)
    return {
        "moved": float(np.median([_distance(b, a) for b, a in zip(before, after, strict=True)])),
        "band": _band([*before, *others]), "norm_moved": norm_moved, "norm_band": norm_band, "norm_size": norm_size,
        "steps": len(before[0]), "rounds": len(rounds), "seeds": len(before),
    }  # fmt: skip


def _verdict(facts: dict[str, Any], before: Runs, after: Runs, others: Runs) -> tuple[bool, str]:
    moved, band, size = facts["moved"], facts["band"], _size(before)
    if not band:
        why = "there is no other seed to compare with" if band is None else "the baseline's reruns do not differ"
        return moved <= _TOLERANCE * size, f"{why}; the losses moved by {moved / size:.2%} of their size"
    says = f"losses move by {moved:.3g} from the baseline's with the same seed; another seed moves them by {band:.3g}"
    higher, span = _ends_higher(before, after, others)
    by_chance = _END_CHANCE * band / math.sqrt(len(after) * (len(after[0]) - len(after[0]) // 2))
    if higher > max(span, by_chance, _ROUNDING * size):
        return False, f"{says}, but they end higher by {higher:.3g} (baselines differ by {span:.3g} there)"
    norm_moved, norm_band = facts["norm_moved"], facts["norm_band"]
    if norm_moved is not None and norm_band is not None:
        says += f" (gradient norms: {norm_moved:.3g} and {norm_band:.3g})"
        if norm_moved > max(_NORM_CHANCE * norm_band, _NORM_ROUNDING * facts["norm_size"]):
            return False, says
    return moved <= max(_CHANCE * band, _ROUNDING * size), says


def _ends_higher(before: Runs, after: Runs, others: Runs) -> tuple[float, float]:
    """How much higher the tuned losses are over the second half of the steps, and how far baselines differ there."""
    half = len(before[0]) // 2
    ends = [float(np.median(b[half:])) for b in before]
    tuned = [float(np.median(a[half:])) for a in after]
    all_ends = [*ends, *(float(np.median(o[half:])) for o in others)]
    return float(np.mean(tuned) - np.mean(ends)), max(all_ends) - min(all_ends)


def _until_none(trajectory: Sequence[float | None]) -> list[float]:
    """The losses up to the first step without one."""
    return [float(loss) for loss in itertools.takewhile(lambda loss: loss is not None, trajectory)]  # type: ignore[arg-type]


def _can_be_compared(m: Measurement) -> bool:
    losses = _until_none(m.trajectory)
    return len(losses) >= _FEWEST_STEPS and _is_finite(losses)


def _is_finite(losses: Sequence[float]) -> bool:
    return all(map(math.isfinite, losses))


def _same(first: Sequence[float], second: Sequence[float]) -> bool:
    steps = min(len(first), len(second))
    return steps > 0 and list(first[:steps]) == list(second[:steps])


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

"""One process beside ranks: the same seed, so the same weights and batches. What differs is the split. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from vivace.records.first_steps import FirstStep
from vivace.records.measurement import Measurement
from vivace.records.proof import HarmOutcome, HarmTest
from vivace.tune.comparison import Pair
from vivace.tune.harm.claims import Claims, claims_of
from vivace.tune.harm.first_step import compare_first_steps
from vivace.tune.harm.paired_losses import compare_losses

__all__ = ["Compared", "compare", "shown"]

_FINEST = 1e-8  # sketches of gradients are kept to eight digits


class Compared:
    """``alone``: one process; ``split``: the ranks. ``rerun``: one process twice, where a doubt asked for it."""

    def __init__(self, alone: Measurement, split: Measurement, words: Sequence[str], rerun: Pair | None = None) -> None:
        self.pair: Pair = (alone, split)
        self.claims: Claims = claims_of(words, alone)
        self.first: HarmTest = compare_first_steps(self.pair, self.claims, rerun)
        self.losses = tuple(_loss_differences(alone, split))
        self.later: HarmTest | None = self._compare_losses(rerun)

    def _compare_losses(self, rerun: Pair | None) -> HarmTest | None:
        before, after = (_known_losses(m)[: len(self.losses)] for m in self.pair)
        if len(self.losses) < 2 or not all(map(math.isfinite, (*before, *after))):
            return None
        twice = None
        if rerun is not None:
            first, second = (_known_losses(m) for m in rerun)
            count = min(len(first), len(second), len(before))
            twice = (first[:count], second[:count]) if count else None
        return compare_losses([before], [after], None, self.claims, twice)

    @property
    def failed(self) -> str | None:
        """What differs by more than rounding, and where; the gradients come before the losses."""
        for test in (self.first, self.later):
            if test is not None and test.outcome is HarmOutcome.FAILED:
                return test.says
        return None

    @property
    def not_compared(self) -> str | None:
        """Why the first steps could not be compared."""
        return self.first.says if self.first.outcome is HarmOutcome.NOT_RUN else None

    @property
    def gradient(self) -> float | None:
        found = [_relative(old, new) for old, new in _first_of_each_optimizer(self.pair)]
        return max(found, default=None)

    @property
    def same_bits(self) -> bool:
        old, new = (m.first_steps.steps if m.first_steps is not None else () for m in self.pair)
        steps = list(zip(old, new, strict=False))
        return bool(steps) and all(
            (a.gradient_digest, a.update_digest) == (b.gradient_digest, b.update_digest) for a, b in steps
        )

    def says(self) -> str:
        """The agreement, with its figures."""
        gradient = "to the bit" if self.same_bits else f"to {shown(self.gradient or 0.0)}"
        if not self.losses:
            return f"equal to one process at step 1 {gradient} (gradients)"
        largest = max(self.losses)
        losses = "the same" if largest == 0 else f"equal to {shown(largest)}"
        return f"equal to one process at step 1 {gradient} (gradients); losses of {len(self.losses)} steps {losses}"


def compare(alone: Measurement, split: Measurement, words: Sequence[str], rerun: Pair | None = None) -> Compared:
    return Compared(alone, split, words, rerun)


def shown(difference: float) -> str:
    """
    >>> shown(2.4e-7), shown(0.0), shown(0.0213)
    ('2e-07', '1e-08', '2e-02')
    """
    return f"{max(difference, _FINEST):.0e}"


def _first_of_each_optimizer(pair: Pair) -> Iterator[tuple[FirstStep, FirstStep]]:
    seen: set[int] = set()
    old, new = (m.first_steps.steps if m.first_steps is not None else () for m in pair)
    for first, second in zip(old, new, strict=False):
        if first.optimizer not in seen and np.shape(first.gradient) == np.shape(second.gradient):
            seen.add(first.optimizer)
            yield first, second


def _relative(old: FirstStep, new: FirstStep) -> float:
    a, b = np.ravel(np.asarray(old.gradient)), np.ravel(np.asarray(new.gradient))
    length = float(np.linalg.norm(a))
    return float(np.linalg.norm(b - a)) / length if length > 0 else float(np.any(b != a))


def _known_losses(m: Measurement) -> list[float]:
    known: list[float] = []
    for loss in m.trajectory:
        if loss is None:
            break
        known.append(float(loss))
    return known


def _loss_differences(alone: Measurement, split: Measurement) -> Iterator[float]:
    before, after = _known_losses(alone), _known_losses(split)
    size = 0.1 * (float(np.median(np.abs(before))) if before else 0.0) or 1.0
    for a, b in zip(before, after, strict=False):
        yield 0.0 if a == b or (math.isnan(a) and math.isnan(b)) else abs(a - b) / max(abs(a), size)

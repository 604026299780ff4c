"""A step that pays once for an input size not seen before: kernels are chosen, code is compiled. Pure.

The last, smaller batch of the first epoch does that where cuDNN measures its algorithms or a model is compiled: seconds
that never come again, in a window of seconds. Like the warm-up they are no part of a training's speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from statistics import median

from vivace.measure.inside.steps.timeline import Step

__all__ = ["first_of_its_size"]

_FEWEST_STEPS = 5
_SLOWER = 2.0  # than the median step: a smaller batch should take less


def first_of_its_size(steps: Sequence[Step]) -> int | None:
    """The number of the step that was slow because its inputs had the smaller one of two sizes for the first time.

    With more sizes than two inputs vary, and every new one is part of the job. So is what is slow again later.
    """
    sizes = [step.shapes for step in steps]
    counts = Counter(sizes)
    if len(counts) != 2 or len(steps) < _FEWEST_STEPS or any(None in size for size in counts):
        return None
    usual, rare = sorted(counts, key=counts.__getitem__, reverse=True)
    if _elements(rare) >= _elements(usual):
        return None
    too_long = _SLOWER * median(step.total_ms for step in steps)
    slow = [n for n, step in enumerate(steps) if sizes[n] == rare and step.total_ms > too_long]
    return slow[0] if slow == [sizes.index(rare)] else None


def _elements(shapes: Sequence[Sequence[int]]) -> int:
    return sum(prod(shape) for shape in shapes)

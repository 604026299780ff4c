"""A step that pays once for an input size not seen before: kernels are chosen, code is compiled. Pure.

The last, smaller batch of the first epoch does that where cuDNN measures its algorithms or a model is compiled: seconds
that never come again, in a window of seconds. Like the warm-up they are no part of a training's speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from vivace.measure.inside.timeline import Step

__all__ = ["first_of_its_size"]

_FEWEST_STEPS = 5
_SLOWER = 2.0  # than the median step: a smaller batch should take less


def first_of_its_size(steps: Sequence[Step]) -> int | None:
    """The number of the step that was slow because its inputs had the rarer one of two sizes for the first time.

    With more sizes than two inputs vary, and every new one is part of the job.
    """
    sizes = [tuple(forward["shape"] for forward in step.forwards if forward["grad"]) for step in steps]
    counts = Counter(sizes)
    if len(counts) != 2 or len(steps) < _FEWEST_STEPS:
        return None
    first = sizes.index(min(counts, key=counts.__getitem__))
    return first if steps[first].total_ms > _SLOWER * median(step.total_ms for step in steps) else None

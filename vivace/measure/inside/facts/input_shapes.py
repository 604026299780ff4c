"""How the shapes of a model's inputs vary over the timed steps. Pure: reads steps, computes, knows no torch.

Batches padded to their own length have another shape at almost every step: the allocator and cuDNN then find nothing
that fits, and start anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from vivace.measure.inside.steps.timeline import Step

__all__ = ["describe_input_shapes", "elements_of"]

_MOST = 50  # counts that are kept; a window has fewer steps than that, as a rule


def describe_input_shapes(steps: Sequence[Step], earlier: Sequence[Step]) -> dict[str, Any]:
    """``repeats``: how often each shape came, the most frequent first; ``new``: steps whose shape came for the first
    time since the process began; ``elements``: the mean number of elements that a step put into its forwards, and
    ``squares``: the mean of their squares (attention grows with it)."""
    shapes = [step.shapes for step in steps if step.shapes]
    seen = {step.shapes for step in earlier}
    new = 0
    for shape in shapes:
        new += shape not in seen
        seen.add(shape)
    elements = [elements_of(step) for step in steps if step.shapes]
    return {
        "repeats": sorted(Counter(shapes).values(), reverse=True)[:_MOST],
        "new": new,
        "elements": sum(elements) / len(elements) if elements else None,
        "squares": sum(n * n for n in elements) / len(elements) if elements else None,
    }


def elements_of(step: Step) -> int:
    """Elements of the first input of every forward of the step that needs gradients."""
    return sum(prod(shape) for shape in step.shapes if shape is not None)

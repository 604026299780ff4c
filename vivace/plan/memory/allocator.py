"""What PyTorch's caching allocator holds beyond the tensors of an eager training step.

Blocks of 10 MiB and more get segments of their own, which stay when the block is freed and serve later
requests that fit (docs.pytorch.org/docs/stable/notes/cuda.html, "Memory management"). Two things do not fit
from one step to the next; both are counted, not fitted. Pure arithmetic; called by ``peak.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LossMoment", "eager_reserve_bytes"]


@dataclass(frozen=True)
class LossMoment:
    """Bytes on one rank when the loss's backward starts, the peak of most steps."""

    freed_gradients: float
    """``zero_grad(set_to_none=True)`` freed them; 0 where they persist."""
    largest_gradient: float
    activations: float
    logits_16: float
    """The 16-bit logits: already freed then, but the fp32 blocks beside them are twice as large."""


def eager_reserve_bytes(moment: LossMoment) -> float:
    """Freed gradients hold the next step's activations (neighbours merge), but none of the loss's blocks of
    gigabytes, because moments that were made in between keep them apart. The block of the 16-bit logits holds
    none of the three fp32 ones, and hides among the gradients only when one of them was as large.
    """
    stranded = max(0.0, moment.freed_gradients - moment.activations)
    hidden = stranded >= moment.logits_16 and moment.largest_gradient >= moment.logits_16
    return stranded + (0.0 if hidden else moment.logits_16)

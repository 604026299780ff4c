"""``Probed``: what differential runs measured, for practices whose price they tell better than one run can."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Probed"]


@dataclass(frozen=True)
class Probed:
    """Milliseconds per step of the job with one cost taken away. None: that run was not made, or it failed."""

    same_batch_ms: float | None = None
    """With one batch again and again, at the size of a mean batch: no loading, no new shapes."""
    no_gradient_sync_ms: float | None = None
    """With the gradients of DDP left on their ranks."""

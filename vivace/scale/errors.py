"""What ends a training over ranks."""

from __future__ import annotations

__all__ = ["ScaleError"]


class ScaleError(RuntimeError):
    """The ranks no longer compute what one process would: the training must not go on."""

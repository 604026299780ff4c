"""Which optimizer step ends a training step? Pure bookkeeping over the order in which optimizers step.

A cycle ends when the *anchor* steps: the optimizer that steps least often, the last one among equals. With one
optimizer that is every step; with a GAN's two, the second; with five critic steps to one of the generator's, the
generator's.
"""

from __future__ import annotations

import weakref
from typing import Any

__all__ = ["Cycles"]

_PATIENCE = 50  # steps of others after which an anchor that does not step any more is given up


class Cycles:
    """``step`` answers for every optimizer step. ``changed`` tells that what a cycle is has just changed."""

    def __init__(self) -> None:
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()  # ids of dead optimizers are reused, objects are not
        self._anchor: weakref.ref[Any] | None = None
        self._others = 0
        self.changed = False

    def seen(self) -> list[Any]:
        """The optimizers that stepped and are still alive."""
        return list(self._seen)

    def step(self, optimizer: Any) -> bool:
        """Whether this step ends a cycle."""
        is_new = optimizer not in self._seen
        self._seen.add(optimizer)
        anchor = self._anchor() if self._anchor is not None else None
        self._others += 1
        if optimizer is anchor:
            self.changed = False
        elif anchor is None or is_new or self._others > _PATIENCE:
            self.changed = self._anchor is not None
            self._anchor = weakref.ref(optimizer)
        else:
            self.changed = False
            return False
        self._others = 0
        return True

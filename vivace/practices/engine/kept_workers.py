"""Workers that live on between epochs, without another shuffling.

At the start of every epoch torch draws a number to seed the workers with, from the generator that the order of the
samples is drawn from next. A loader that keeps its workers does not draw it any more, and from the second epoch on the
script would see its samples in another order. So it is drawn for the loaders that a practice has made keep theirs.
"""

from __future__ import annotations

from typing import Any

from vivace.measure.inside.patches import in_place_of
from vivace.practices.engine.torch_later import torch

__all__ = ["Kept", "keep_the_order"]


class Kept(int):
    """``persistent_workers`` of a loader whose script did not ask for it: true, and known by its type."""


def keep_the_order() -> None:
    """Once a process; called by every practice that sets ``persistent_workers`` to ``Kept(True)``."""
    loaders = torch.utils.data.DataLoader
    original = loaders.__iter__
    if getattr(original, "_draws_for_kept_workers", False):
        return

    def begin_epoch(loader: torch.utils.data.DataLoader[Any]) -> Any:
        if isinstance(loader.persistent_workers, Kept) and loader._iterator is not None:
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        return original(loader)

    begin_epoch._draws_for_kept_workers = True  # type: ignore[attr-defined]
    loaders.__iter__ = in_place_of(original, begin_epoch)  # type: ignore[method-assign]

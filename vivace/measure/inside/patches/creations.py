"""Where loaders, optimizers and parallel wrappers are made, and with what options: the lines a finding points at."""

from __future__ import annotations

import contextlib
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DataLoader

from vivace.measure.inside.patches import in_place_of
from vivace.measure.inside.places import user_place

__all__ = ["Creations", "install"]


class Creations:
    """The place of each object that was made since torch was imported; forgotten with the object."""

    def __init__(self) -> None:
        self._places: WeakKeyDictionary[Any, dict[str, Any] | None] = WeakKeyDictionary()
        self.optimizers_made = 0
        self.wrappers: WeakKeyDictionary[torch.nn.Module, bool] = WeakKeyDictionary()

    def note(self, made: Any) -> None:
        self.optimizers_made += isinstance(made, torch.optim.Optimizer)
        with contextlib.suppress(Exception):  # knowing the line is never worth a crash
            if made not in self._places:  # the outermost constructor of a chain of subclasses comes first
                self._places[made] = user_place(3)
            if isinstance(made, torch.nn.Module):
                self.wrappers[made] = True

    def place(self, made: Any) -> dict[str, Any] | None:
        with contextlib.suppress(Exception):
            return self._places.get(made)
        return None


def install() -> Creations:
    creations = Creations()
    for kind in (DataLoader, torch.optim.Optimizer, torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel):
        _watch(creations, kind)
    return creations


def _watch(creations: Creations, kind: Any) -> None:
    original = kind.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        creations.note(self)

    kind.__init__ = in_place_of(original, init)

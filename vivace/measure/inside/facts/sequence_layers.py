"""Whether a network's inputs are time first, by the first of torch's own recurrent or attention layers in it.

Such a layer knows by its ``batch_first`` which dimension of what it gets is the batch. If the network's own inputs have
the same two dimensions in the same order, they are laid out alike; if they have them the other way round, the network
swaps them. Looked at in the first forwards only, and kept: later batches may be smaller.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import nn

from vivace.measure.inside.facts.batches import first_input

__all__ = ["SequenceLayers"]

_LOOKS = 8  # forwards; in one with as many texts as words nothing can be told
_LAYERS = (nn.RNNBase, nn.MultiheadAttention)


class _Seen(NamedTuple):
    """The first two dimensions of what a layer got."""

    sizes: tuple[int, int]
    time_first: bool


class SequenceLayers:
    """``looking`` is true within a forward whose inner modules should be shown with ``look``."""

    def __init__(self) -> None:
        self.looking = False
        self._seen: _Seen | None = None
        self._time_first: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
        self._looks: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()

    def begin(self, root: nn.Module, args: tuple[Any, ...]) -> None:
        looks = self._looks.get(root, 0)
        self.looking = looks < _LOOKS and root not in self._time_first
        if self.looking:
            self._looks[root], self._seen = looks + 1, None
            self.look(root, args)

    def look(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self._seen is None and isinstance(module, _LAYERS) and _is_torchs_own(module) and args:
            given = args[0]
            if isinstance(given, torch.Tensor) and not given.is_nested and given.dim() == 3:
                self._seen = _Seen((given.shape[0], given.shape[1]), not module.batch_first)

    def settle(self, root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | None:
        """After the forward. None: nothing tells."""
        if self.looking:
            self.looking = False
            with contextlib.suppress(Exception):  # inputs can be anything
                self._compare(root, first_input(args, kwargs))
        return self._time_first.get(root)

    def _compare(self, root: nn.Module, given: Any) -> None:
        if self._seen is None or given is None or given.dim() not in (2, 3):
            return
        sizes, time_first = self._seen
        first, second = given.shape[:2]
        if first != second and sizes in ((first, second), (second, first)):
            self._time_first[root] = time_first if sizes == (first, second) else not time_first


def _is_torchs_own(module: nn.Module) -> bool:
    """A subclass with a forward of its own may take anything."""
    return str(type(module).forward.__module__).startswith("torch.nn.modules.")

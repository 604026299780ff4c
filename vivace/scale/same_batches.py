"""The ranks must be given the same batches: each computes its rows of what it believes to be the one batch.

A script whose data follow the time, the process or a generator that one rank used more than another would train on a
mix of several batches, and no loss would show it. Batches are compared at calls 1, 2, 4, 8, 16, 32 and then every 50:
indices that a loader asks for, and samples of what a model is called with.
"""

from __future__ import annotations

import threading
import zlib
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils._pytree import tree_flatten

from vivace.scale.errors import ScaleError
from vivace.scale.group import Group
from vivace.scale.rows import Rows
from vivace.scale.sharded import Sharded

__all__ = ["SameBatches"]

_EVERY = 50
_SAMPLES = 4096  # of a tensor, evenly spaced
_SUMS = 4  # of the samples, with signs that differ from sum to sum
_TOLERANCE = 1e-3  # of the mean size: kernels may sum in any order, other batches differ by 1/64 or more


class SameBatches:
    def __init__(self, group: Group) -> None:
        self.group = group
        self.compared = 0
        self._calls: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()
        self._loaded = 0
        self._asked = 0

    def of_call(self, root: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """Before each call of a model, split or not."""
        count = self._calls[root] = self._calls.get(root, 0) + 1
        if _is_due(count):
            leaves = tree_flatten((args, kwargs))[0]
            self._compare(
                ", ".join(map(_kind, leaves)),
                [number for leaf in leaves for number in _sums(leaf)],
                f"call {count} of {type(root).__name__}",
            )

    def of_loader(self, asked: int) -> None:
        """Of each batch of which a rank loads its rows: a number that stands for the samples of all of it."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._asked, self._loaded = zlib.crc32(str(asked).encode(), self._asked), self._loaded + 1
        if _is_due(self._loaded):
            self._compare(str(self._asked), [], f"batch {self._loaded} of the loaders")

    def _compare(self, words: str, numbers: list[float], place: str) -> None:
        same = self.group.all_say_the_same(words)
        if same and numbers:
            mine = torch.tensor(numbers, dtype=torch.float64)
            largest, smallest = self.group.largest(torch.stack([mine, -mine])).unbind()
            same = not bool((largest + smallest > _TOLERANCE).any())
        self.compared += 1
        if not same:
            raise ScaleError(
                f"the ranks have different batches at {place}: the script's data follow something that is not the "
                "same in every process (the time, a process id, a generator that one rank uses more than another)"
            )


def _is_due(count: int) -> bool:
    return count % _EVERY == 0 if count > _EVERY else count & (count - 1) == 0


def _kind(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return f"{tuple(leaf.shape)} {leaf.dtype}"
    return repr(leaf) if isinstance(leaf, (bool, int, float, str, type(None))) else type(leaf).__name__


def _sums(leaf: Any) -> list[float]:
    """Of samples of a tensor, against their mean size. None of a batch whose rows lie on the ranks."""
    plain = isinstance(leaf, torch.Tensor) and not isinstance(leaf, (Rows, Sharded))
    if not plain or leaf.layout is not torch.strided or leaf.is_complex() or leaf.is_meta or not leaf.numel():
        return []
    with torch.no_grad():
        flat = leaf.detach().reshape(-1)
        every = torch.linspace(0, flat.numel() - 1, min(_SAMPLES, flat.numel()), dtype=torch.float64).long()
        values = torch.nan_to_num(flat[every.to(flat.device)].double().cpu())
        signs = 1.0 - 2.0 * ((torch.arange(len(values)).unsqueeze(0) >> torch.arange(_SUMS).unsqueeze(1)) & 1)
        size = float(values.abs().mean())
        sums = (values * signs).mean(1) / max(size, 1e-30)
    return [size and 1.0, *sums.tolist()]

"""The first save and the first load of a training: what the ranks hold there must be the same on all of them.

Rank 0's file is the one that stays; if another rank would have written other numbers, the ranks no longer train one
model. Buffers (running statistics) are in it, which ``drift`` does not look at.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from vivace.measure.inside.patches import in_place_of
from vivace.scale.drift import checksum
from vivace.scale.errors import ScaleError
from vivace.scale.group import Group

__all__ = ["Moments"]

_MODULUS = 2**61 - 1  # a sum of checksums stays a 64-bit number
_FACTOR = 6_364_136_223_846_793_005


class Moments:
    def __init__(self, group: Group) -> None:
        self.group = group
        self.compared: list[str] = []
        self._pid = os.getpid()

    def install(self) -> None:
        self._at_save()
        self._at_load()

    def _at_save(self) -> None:
        original = torch.save

        def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
            self._compare("save", lambda: tree_flatten(obj)[0])
            return original(obj, *args, **kwargs)

        torch.save = in_place_of(original, save)

    def _at_load(self) -> None:
        original = torch.nn.Module.load_state_dict

        def load_state_dict(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            result = original(module, *args, **kwargs)
            self._compare("load", lambda: [*module.parameters(), *module.buffers()])
            return result

        stand_in: Any = in_place_of(original, load_state_dict)
        torch.nn.Module.load_state_dict = stand_in  # type: ignore[method-assign]

    def _compare(self, what: str, values: Any) -> None:
        here = os.getpid() == self._pid and threading.current_thread() is threading.main_thread()
        if what in self.compared or not here:
            return
        self.compared.append(what)
        count, total = _digest(values())
        told = torch.tensor([count, -count, total, -total], dtype=torch.int64)
        most, fewest, largest, smallest = self.group.largest(told).tolist()
        if most == -fewest and largest != -smallest:  # a rank that holds fewer tensors holds its shard of them
            raise ScaleError(
                "the ranks would save other values than rank 0 saves: they no longer train one model"
                if what == "save"
                else "the ranks have loaded different values: they no longer train one model"
            )


def _digest(values: Iterable[Any]) -> tuple[int, int]:
    """The number of tensors, and one number that changes with any of them; zero1 puts states into another order."""
    count = total = 0
    for value in values:
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and not hasattr(value, "placements"):
            count += 1
            mixed = (checksum(value) % _MODULUS) * _FACTOR + sum(
                size * place for place, size in enumerate(value.shape, 7)
            )
            total = (total + mixed * mixed) % _MODULUS
    return count, total

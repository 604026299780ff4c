"""A forward that decides by its batch: ``if x.mean() > 0``, ``int(lengths.max())``.

A part of the batch may decide otherwise than the whole. So a value that leaves torch inside a split forward must be the
same on every rank, or the call is run whole instead. In the proof of a split, it must be the whole batch's value, too.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch

from vivace.measure.inside.patches import in_place_of
from vivace.scale.region import Region

__all__ = ["Decisions", "Undecided"]

_METHODS = ("item", "tolist", "__bool__", "__int__", "__float__", "__index__")
_FUNCTIONS = ("equal", "allclose", "is_nonzero")


class Undecided(Exception):
    """The ranks' parts decide differently: raised on every rank at the same place."""


class Decisions:
    def __init__(self, region: Region) -> None:
        self.region = region
        self.values: list[Any] | None = None
        """What was decided by, in a trial run; None in a real one."""
        self._busy = False

    def install(self) -> None:
        for name in _METHODS:
            setattr(torch.Tensor, name, self._watched(getattr(torch.Tensor, name)))
        for name in _FUNCTIONS:
            setattr(torch, name, self._watched(getattr(torch, name)))

    def _watched(self, original: Any) -> Any:
        def read(*args: Any, **kwargs: Any) -> Any:
            if self._busy or (self.values is None and self.region.shares is None):
                return original(*args, **kwargs)
            self._busy = True
            try:
                value = original(*args, **kwargs)
                self._decided(value)
            finally:
                self._busy = False
            return value

        return in_place_of(original, read)

    def _decided(self, value: Any) -> None:
        if self.values is not None:
            self.values.append(value)
            return
        mine = torch.tensor([zlib.crc32(repr(value).encode())], dtype=torch.int64)
        both = self.region.group.largest(torch.cat([mine, -mine]))
        if int(both[0]) != -int(both[1]):
            raise Undecided

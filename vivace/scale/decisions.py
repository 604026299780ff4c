"""A forward that decides by its batch: ``if x.mean() > 0``, ``int(lengths.max())``.

A part of the batch may decide otherwise than the whole. ``all``, ``any``, ``max`` and ``min`` over everything are
therefore taken over all ranks. Any other value that leaves torch inside a split forward must be the same on every rank,
or the call is run whole instead. In the proof of a split, it must be the whole batch's value, too.
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
_LARGEST, _SMALLEST = ("any", "max", "amax"), ("all", "min", "amin")


class Undecided(Exception):
    """The ranks' parts decide differently: raised on every rank at the same place."""


class Decisions:
    def __init__(self, region: Region) -> None:
        self.region = region
        self.values: list[Any] | None = None
        """What was decided by, in a trial run; None in a real one."""
        self.watching = False
        """Whether the forward that runs is known to decide, or may be."""
        self._busy = False

    def install(self) -> None:
        for names, sign in ((_LARGEST, 1), (_SMALLEST, -1)):
            for name in names:
                for home in (torch.Tensor, torch):
                    setattr(home, name, self._over_ranks(getattr(home, name), sign))
        for name in _METHODS:
            setattr(torch.Tensor, name, self._watched(getattr(torch.Tensor, name)))
        for name in _FUNCTIONS:
            setattr(torch, name, self._watched(getattr(torch, name)))

    def _over_ranks(self, original: Any, sign: int) -> Any:
        """Of a tensor without gradients, over everything in it; with a dimension it is left as it is."""

        def reduce(*args: Any, **kwargs: Any) -> Any:
            value = original(*args, **kwargs)
            plain = len(args) == 1 and not kwargs and isinstance(value, torch.Tensor) and not value.requires_grad
            if not plain or self._busy or not self.watching or self.region.shares is None:
                return value
            number = value.to(torch.float64 if value.is_floating_point() else torch.int64).reshape(1) * sign
            return (self.region.group.largest(number) * sign).to(value.dtype).reshape(())

        return in_place_of(original, reduce)

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

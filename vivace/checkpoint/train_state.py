"""Everything a training needs to go on exactly, apart from its tensors: one small typed record per rank.

Tensors (model, optimizer, averaged weights) go through DCP, which can hand them to another number of ranks.
"""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["RandomState", "TrainState"]


@dataclass
class RandomState:
    """The random number generators of one process. numpy's only where the training has loaded numpy."""

    torch_cpu: torch.Tensor
    python: Any
    torch_cuda: torch.Tensor | None = None
    """Of the current device: a rank has one."""
    numpy: tuple[str, list[int], int, int, float] | None = None
    generators: dict[str, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def capture(cls, generators: Mapping[str, torch.Generator] | None = None) -> RandomState:
        """``generators``: the script's own, by names of its choice."""
        return cls(
            torch_cpu=torch.get_rng_state(),
            python=random.getstate(),
            torch_cuda=torch.cuda.get_rng_state() if _cuda_is_used() else None,
            numpy=_numpy_state(),
            generators={name: one.get_state() for name, one in (generators or {}).items()},
        )

    def restore(self, generators: Mapping[str, torch.Generator] | None = None) -> None:
        torch.set_rng_state(self.torch_cpu)
        version, internal, gauss = self.python
        random.setstate((version, tuple(internal), gauss))
        if self.torch_cuda is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(self.torch_cuda)
        if self.numpy is not None:
            numpy = importlib.import_module("numpy")  # it was used before; a training without it is another one
            name, keys, *rest = self.numpy
            numpy.random.set_state((name, numpy.array(keys, dtype=numpy.uint32), *rest))
        for name, one in (generators or {}).items():
            one.set_state(self.generators[name])


@dataclass
class TrainState:
    """``step`` steps are done; ``samples`` of ``epoch`` have been used (the position in the data).

    ``schedule`` and ``scaler`` are their ``state_dict()``; ``more`` holds plain values and small tensors of your own.
    ``random`` is taken by the save unless it is given, and is None after a load on another number of ranks: seed again
    then. ``metrics`` are also in the marker, where keeping the best looks.
    """

    step: int = 0
    epoch: int = 0
    samples: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    schedule: dict[str, Any] | None = None
    scaler: dict[str, Any] | None = None
    more: dict[str, Any] = field(default_factory=dict)
    random: RandomState | None = None
    saved_world: int | None = None
    """How many ranks saved it; None before a load."""

    def restore_random(self, generators: Mapping[str, torch.Generator] | None = None) -> bool:
        """Last of all before the loop, so that nothing draws in between. False when there is nothing to restore."""
        if self.random is None:
            return False
        self.random.restore(generators)
        return True

    def to_plain(self) -> dict[str, Any]:
        """What ``torch.load(weights_only=True)`` reads again."""
        fields = {name: value for name, value in vars(self).items() if name not in ("random", "saved_world")}
        return {**fields, "random": None if self.random is None else dict(vars(self.random))}

    @classmethod
    def from_plain(cls, fields: Mapping[str, Any], saved_world: int) -> TrainState:
        drawn = fields.get("random")
        own = {**fields, "random": None if drawn is None else RandomState(**drawn), "saved_world": saved_world}
        return cls(**own)


def _cuda_is_used() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_initialized()


def _numpy_state() -> tuple[str, list[int], int, int, float] | None:
    if "numpy.random" not in sys.modules:
        return None
    name, keys, position, has_gauss, gauss = sys.modules["numpy"].random.get_state()
    return (str(name), [int(key) for key in keys], int(position), int(has_gauss), float(gauss))

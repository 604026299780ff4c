"""Stands in for the iterator of a DataLoader, so that a change can look at the batches or fetch them ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from vivace.practices.engine.tensors import map_tensors
from vivace.practices.engine.torch_later import torch

__all__ = ["Batches", "host_tensors", "tensors_in"]


class Batches:
    """``take(iterator)`` gives the next batch, or raises ``StopIteration``. Anything else is the iterator's own."""

    def __init__(self, iterator: Any, take: Callable[[Any], Any]) -> None:
        self._iterator, self._take = iterator, take

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._take(self._iterator)

    def __len__(self) -> int:
        return len(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in a batch or in a forward's inputs, in the order of the nesting; nothing is changed."""
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, note)
    return found


def host_tensors(batch: Any) -> list[torch.Tensor]:
    """Those that are plain and lie on the host."""
    return [t for t in tensors_in(batch) if type(t) is torch.Tensor and t.is_cpu and t.layout is torch.strided]

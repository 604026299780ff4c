"""The longest batch first, for ``find batch``: a size fits only if it holds the longest samples too.

``probe:longest_first=N`` looks at the samples of a loader's dataset, makes a batch of the longest ones, and hands it
out N times before the loader's own: once is not enough, for an optimizer takes its memory after the first step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from vivace.practices.engine.batches import Batches
from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.tensors import map_tensors
from vivace.practices.engine.torch_later import torch

__all__ = ["LongestFirst", "size_of"]

_SECONDS = 5.0
_MOST_SAMPLES = 100_000
_ENOUGH = 4  # batches to choose from, or all samples
_TIMES = 3


class LongestFirst(Change):
    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.times = int(argument or _TIMES)
        self.seen: dict[int, Any] = {}  # datasets by their place in memory, which no other gets while they are here

    def iterator(self, loader: Any, iterator: Any) -> Any:
        """Told as applied only if no loader refuses: which of them trains is not known here."""
        if id(loader.dataset) in self.seen:
            return iterator
        self.seen[id(loader.dataset)] = loader.dataset
        try:
            batch, told = longest_batch(loader)
        except NotApplicable as reason:
            self._give_up(str(reason))
        except Exception as error:  # the script's dataset; the run goes on without
            self._give_up(f"its samples cannot be looked at ({type(error).__name__}: {error})")
        if not self.refused:
            self.applied(told)
        return _before(batch, self.times, iterator)

    def _give_up(self, reason: str) -> None:
        self.done = None
        raise NotApplicable(reason) from None


def _before(batch: Any, times: int, iterator: Any) -> Batches:
    left = times

    def take(its: Any) -> Any:
        nonlocal left
        if left == 0:
            return next(its)
        left -= 1
        return map_tensors(batch, lambda tensor: tensor.clone())  # a script may write into it

    return Batches(iterator, take)


def longest_batch(loader: Any) -> tuple[Any, str]:
    """The batch, and what it is in words."""
    if isinstance(loader.dataset, torch.utils.data.IterableDataset) or not hasattr(loader.dataset, "__len__"):
        raise NotApplicable("the dataset is iterable: its longest samples are known only when they come")
    if loader.batch_size is None:
        raise NotApplicable("the script makes its batches itself")
    sizes = _sizes(loader.dataset)
    if len(sizes) < min(len(loader.dataset), _ENOUGH * loader.batch_size):
        raise NotApplicable(f"only {len(sizes)} samples could be looked at in {_SECONDS:.0f} s")
    if len(set(sizes.values())) == 1:
        raise NotApplicable("no sample looks longer than the others")
    longest = sorted(sizes, key=lambda index: -sizes[index])[: loader.batch_size]
    batch = loader.collate_fn([loader.dataset[index] for index in longest])
    return batch, f"a batch of the longest of {len(sizes)} samples looked at, of {len(loader.dataset)}"


def _sizes(dataset: Any) -> dict[int, int]:
    """Of samples all over the dataset, as many as there is time for."""
    sizes: dict[int, int] = {}
    until = time.monotonic() + _SECONDS
    for index in _spread(len(dataset)):
        sizes[index] = size_of(dataset[index])
        if time.monotonic() > until:
            break
    return sizes


def _spread(count: int) -> list[int]:
    """At most so many, in an order without a pattern: wherever it ends, all parts of the dataset were looked at."""
    generator = torch.Generator().manual_seed(0)
    if count <= _MOST_SAMPLES:
        return [int(index) for index in torch.randperm(count, generator=generator)]
    drawn = torch.randint(count, (_MOST_SAMPLES,), generator=generator)
    return list(dict.fromkeys(int(index) for index in drawn))


def size_of(sample: Any) -> int:
    """Numbers and letters in a sample, whatever its nesting.

    >>> size_of(({"text": "four", "ids": [1, 2, 3]}, 7))
    8
    """
    if isinstance(sample, torch.Tensor):
        return sample.numel()
    if isinstance(sample, (str, bytes)):
        return len(sample)
    if isinstance(sample, Mapping):
        return sum(map(size_of, sample.values()))
    if isinstance(sample, Sequence):
        return sum(map(size_of, sample))
    if hasattr(sample, "__array__"):
        return int(getattr(sample, "size", 1))
    return size_of(vars(sample)) if hasattr(sample, "__dict__") else 1

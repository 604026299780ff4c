"""Preallocation: the longest batch comes first, so that the allocator has room for all that follow."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset, RandomSampler, Sampler, SequentialSampler

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import on_gpu, retries_ms
from vivace.practices.engine.sample_sizes import SampleSizes

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement


class LongestFirst(Change):
    """In each loader's first epoch its longest samples change places with those of the first batch."""

    def loader(self, arguments: dict[str, Any]) -> None:
        _check(arguments)
        sampler = arguments["sampler"]
        if sampler is None:
            dataset, generator = arguments["dataset"], arguments["generator"]
            sampler = (
                RandomSampler(dataset, generator=generator) if arguments["shuffle"] else SequentialSampler(dataset)
            )
        elif isinstance(sampler, _LongestFirst):  # a framework made this loader from one of ours
            sampler = sampler.inner
        arguments["sampler"] = _LongestFirst(sampler, arguments["dataset"], arguments["batch_size"], self)
        arguments["shuffle"] = None


def _check(arguments: Mapping[str, Any]) -> None:
    if isinstance(arguments["dataset"], IterableDataset) or not hasattr(arguments["dataset"], "__len__"):
        raise NotApplicable("the dataset is iterable: its longest samples are known only when they come")
    if arguments["batch_sampler"] is not None or arguments["batch_size"] is None:
        raise NotApplicable("the script makes its batches itself")
    if arguments["sampler"] is not None and not hasattr(arguments["sampler"], "__len__"):
        raise NotApplicable("the sampler has no end: its longest samples are known only when they come")
    if not hasattr(os, "fork"):
        raise NotApplicable("samples are looked at in a forked process, which this system does not have")


class _LongestFirst(Sampler[int]):
    """The script's sampler, with every index once as before. Anything else (``set_epoch``) is the sampler's own."""

    def __init__(self, inner: Any, dataset: Any, batch_size: int, change: LongestFirst) -> None:
        self.inner, self._dataset, self._batch_size, self._change = inner, dataset, batch_size, change
        self._first_epoch = True

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[int]:
        if not self._first_epoch:
            yield from self.inner
            return
        self._first_epoch = False
        sizes = SampleSizes(self._dataset)
        indices = list(itertools.islice(self.inner, len(self.inner)))
        if sizes.vary:
            self._to_the_front(indices, sizes)
            looked_at = f"{len(sizes.known)} of {sizes.samples} samples looked at"
            self._change.applied(f"the first batch has the {self._batch_size} longest of {looked_at}")
        else:
            alike = "cannot be read in another process" if not sizes.known else "are all of the same size"
            self._change.refused = self._change.refused or f"samples {alike}"
        yield from indices

    def _to_the_front(self, indices: list[int], sizes: SampleSizes) -> None:
        """Places in ``indices`` are swapped, so that each index stays as often as it was."""
        places = sorted(range(len(indices)), key=lambda place: -sizes.known.get(indices[place], 0))
        for front, place in enumerate(sorted(places[: self._batch_size])):
            indices[front], indices[place] = indices[place], indices[front]

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # not there yet: a copy is being made
            raise AttributeError(name)
        return getattr(self.inner, name)


def find(m: Measurement) -> Found | None:
    device = m.memory.device
    shapes = m.input_shapes or 1
    if not on_gpu(m) or device is None or shapes < 2 or not device.alloc_retries:
        return None
    saved = retries_ms(m)
    return Found(
        exposed_ms=saved,
        evidence={
            "input_shapes": shapes,
            "alloc_retries": device.alloc_retries,
            "reserved_peak_gib": round(device.reserved_peak_gib, 2),
            "allocated_peak_gib": round(device.allocated_peak_gib, 2),
        },
        says=(
            f"inputs come in {shapes} shapes and the allocator had to start again {device.alloc_retries} times: "
            f"at most {saved:.1f} ms a step"
        ),
        why_not=None if m.loaders else "there is no DataLoader whose samples could change places",
    )


PRACTICE = Practice(
    name="preallocate",
    title="preallocate memory with the longest batch",
    family="memory",
    risk="algorithmic",
    source="R13: preallocate memory for variable lengths; one forward and backward on a batch of the maximum length.",
    why=(
        "A longer batch needs larger blocks than those in the allocator's cache. It takes new ones; when the card is "
        "full it gives all others back first, which waits for the GPU. When the longest batch comes first, every later "
        "one fits into its blocks, and it shows at once whether it fits. From outside, the longest samples change "
        "places with those of the first batch, in the first epoch: another order of the same data. By hand no sample "
        "moves. `vivace find batch` does it where inputs differ in length."
    ),
    by_hand=(
        "longest = torch.ones(batch_size, max_length, dtype=torch.long, device=device)\n"
        "model(longest).sum().backward()   # before the first batch; no optimizer step\n"
        "optimizer.zero_grad(set_to_none=True)"
    ),
    find=find,
    change=LongestFirst,
    order=12,
)

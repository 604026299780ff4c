"""``Feed``: batches on the device, ready to train on.

Workers read and decode; pixels travel as bytes and become numbers on the device. With CUDA the next batch travels on a
stream of its own while this one computes. One loader serves the whole training: no pause between epochs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from vivace import distributed
from vivace.errors import ExitCode
from vivace.preemption import protect_worker
from vivace.recipes.course import Course
from vivace.recipes.decoding import nvjpeg_decode
from vivace.recipes.recipe import Recipe
from vivace.recipes.sources import EVALUATED, DataError, Fetched, FileSource, Key, Source

__all__ = ["Batch", "Feed", "Skipped"]

_SHOWN = 10  # unreadable images that are printed


@dataclass
class Batch:
    """This rank's share of a step. Images are (n, 3, height, width), still 0 to 255."""

    inputs: Tensor
    targets: Tensor
    indices: Tensor

    def parts(self, count: int) -> Iterator[Batch]:
        """In ``count`` equal pieces, for accumulation."""
        if count == 1:
            yield self
            return
        pieces = (self.inputs.chunk(count), self.targets.chunk(count), self.indices.chunk(count))
        yield from (Batch(*piece) for piece in zip(*pieces, strict=True))


class Skipped:
    """Counts unreadable images, prints the first, and ends the training when there are too many."""

    def __init__(self, allowed: int) -> None:
        self.messages: dict[str, None] = {}
        self._allowed = allowed

    def note(self, messages: Sequence[str]) -> None:
        for message in messages:
            if message in self.messages:
                continue
            self.messages[message] = None
            if len(self.messages) <= _SHOWN:
                print(f"vivace: skipped an image: {message}", file=sys.stderr, flush=True)
            if len(self.messages) > self._allowed:
                raise DataError(
                    f"{len(self.messages)} images cannot be read, more than data.corrupt_share allows",
                    hint="mend the data, or allow more: --set data.corrupt_share=…",
                    exit_code=ExitCode.NEGATIVE,
                )


class Feed:
    def __init__(
        self, recipe: Recipe, source: Source, course: Course, world: distributed.World, device: torch.device
    ) -> None:
        self._recipe, self._source, self._course, self._device = recipe, source, course, device
        self._rank, self._ranks = world.rank, world.world_size
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, dtype=np.int64))
        self.skipped = Skipped(int(recipe.data.corrupt_share * len(source)))
        self._resident: dict[int, _Resident] = {}

    def batches(self, first_step: int, last_step: int) -> Iterator[Batch]:
        """This rank's share of every step from ``first_step`` to before ``last_step``."""
        steps = range(first_step, last_step)
        if (resident := self._kept(self._source)) is not None:
            return (resident.batch(self._numbers(step)) for step in steps)
        return self._on_device((self._keys(step) for step in steps), self._source)

    def _numbers(self, step: int) -> np.ndarray:
        """Which samples: the order of an epoch follows from the seed and its number."""
        place = self._course.place(step)
        if self._order[0] != place.epoch:
            draws = np.random.default_rng([self._recipe.seed, place.epoch])
            self._order = (place.epoch, draws.permutation(len(self._source)))
        share = self._course.batch(step) // self._ranks
        first = place.first + self._rank * share
        return self._order[1][first : first + share]

    def _keys(self, step: int) -> list[Key]:
        epoch, size = self._course.place(step).epoch, self._course.image_size(step)
        return [Key(number, epoch, size, size) for number in self._numbers(step).tolist()]

    def evaluation(self, source: Source) -> Iterator[Batch]:
        """All samples of ``source`` once, over all ranks, in order; the last batch may be smaller."""
        recipe, batch = self._recipe, self._recipe.validation.batch or self._recipe.batch
        mine = list(range(self._rank, len(source), self._ranks))
        shapes: list[tuple[list[int], int, int]]
        size, share = recipe.data.image_size, max(1, batch // self._ranks)
        if recipe.validation.rectangles and isinstance(source, FileSource):
            shapes = _rectangles(mine, source, size, share)
        else:
            shapes = [(mine[first : first + share], size, size) for first in range(0, len(mine), share)]
        if (resident := self._kept(source)) is not None:
            return (resident.batch(resident.readable(each)) for each, _, _ in shapes)
        keys = ([Key(index, EVALUATED, height, width) for index in each] for each, height, width in shapes)
        return self._on_device(keys, source)

    def _kept(self, source: Source) -> _Resident | None:
        """The images of a source on the device, where the recipe keeps them there."""
        if not self._recipe.data.resident:
            return None
        if id(source) not in self._resident:
            self._resident[id(source)] = _Resident(self._recipe, source, self._device, self.skipped)
        return self._resident[id(source)]

    def _on_device(self, keys: Iterator[list[Key]], source: Source) -> Iterator[Batch]:
        fetched = self._fetched(keys, source)
        if self._device.type == "cuda" and self._recipe.speed.gpu_prefetch:
            return self._ahead(fetched)
        return (self._moved(each) for each in fetched)

    def _fetched(self, keys: Iterator[list[Key]], source: Source) -> Iterator[Fetched]:
        """In workers where there is something to read: indexing an array is faster than sending it over."""
        workers = self._recipe.data.workers if hasattr(source, "images") or hasattr(source, "dataset") else 0
        loader: DataLoader[Fetched] = DataLoader(
            source,  # type: ignore[arg-type]
            batch_size=None,
            sampler=_Once(keys),
            num_workers=workers,
            prefetch_factor=self._recipe.data.prefetch if workers else None,
            pin_memory=self._recipe.speed.pin_memory and self._device.type == "cuda",
            worker_init_fn=protect_worker,
            generator=torch.Generator(),  # else it would draw a seed from the training's own
        )
        for fetched in loader:
            self.skipped.note(fetched.skipped)
            if source is self._source and not len(fetched.targets):
                raise DataError(f"no image of a batch can be read: {fetched.skipped[-1]}", hint="look at data.train")
            yield fetched

    def _moved(self, fetched: Fetched) -> Batch:
        device = self._device
        targets, indices = (each.to(device, non_blocking=True) for each in (fetched.targets, fetched.indices))
        if fetched.cuts:
            inputs, bad = nvjpeg_decode(fetched.inputs, list(fetched.cuts), device)
            if bad:
                self.skipped.note([f"sample {int(fetched.indices[number])}: nvJPEG cannot decode it" for number in bad])
                kept = torch.tensor([number for number in range(len(targets)) if number not in bad], device=device)
                targets, indices = targets[kept], indices[kept]
            return Batch(inputs, targets, indices)
        return Batch(_channels_first(fetched.inputs.to(device, non_blocking=True)), targets, indices)

    def _ahead(self, fetched: Iterator[Fetched]) -> Iterator[Batch]:
        """One batch in advance, on a side stream. Only ever run on a CUDA device."""
        stream, waiting = torch.cuda.Stream(self._device), None
        for each in fetched:
            with torch.cuda.stream(stream):
                moved = self._moved(each)
            if waiting is not None:
                yield waiting
            torch.cuda.current_stream().wait_stream(stream)
            for tensor in (moved.inputs, moved.targets, moved.indices):
                tensor.record_stream(torch.cuda.current_stream())
            waiting = moved
        if waiting is not None:
            yield waiting


class _Once:
    """Lists of keys, made as they are asked for. A DataLoader iterates over it a single time."""

    def __init__(self, keys: Iterator[list[Key]]) -> None:
        self._keys = keys

    def __iter__(self) -> Iterator[list[Key]]:
        return self._keys


class _Resident:
    """All images on the device, as bytes: decoded once, before the first batch."""

    def __init__(self, recipe: Recipe, source: Source, device: torch.device, skipped: Skipped) -> None:
        size, count = recipe.data.image_size, len(source)
        keys = [[Key(index, EVALUATED, size, size) for index in range(first, min(first + 512, count))]
                for first in range(0, count, 512)]  # fmt: skip
        loader: DataLoader[Fetched] = DataLoader(
            source,  # type: ignore[arg-type]
            batch_size=None,
            sampler=_Once(iter(keys)),
            num_workers=recipe.data.workers if hasattr(source, "images") else 0,
            worker_init_fn=protect_worker,
            generator=torch.Generator(),
        )
        parts = list(loader)
        skipped.note([message for part in parts for message in part.skipped])
        self._rows = torch.full((count,), -1, dtype=torch.long, device=device)
        indices = torch.cat([part.indices for part in parts]).to(device)
        self._rows[indices] = torch.arange(len(indices), device=device)
        self._gone = set((self._rows < 0).nonzero().flatten().tolist())
        if len(self._gone) == count:
            raise DataError("not one image can be read", hint="look at data.train and data.val")
        for number in self._gone:  # another image in its place, in training
            self._rows[number] = number % len(indices)
        self._inputs = torch.cat([_channels_first(part.inputs) for part in parts]).to(device)
        self._targets = torch.cat([part.targets for part in parts]).to(device)

    def readable(self, numbers: list[int]) -> np.ndarray:
        """For validation: without those that could not be read."""
        return np.array([number for number in numbers if number not in self._gone], dtype=np.int64)

    def batch(self, numbers: np.ndarray) -> Batch:
        indices = torch.from_numpy(numbers).to(self._rows.device, non_blocking=True)
        rows = self._rows[indices]
        return Batch(self._inputs[rows], self._targets[rows], indices)


def _channels_first(inputs: Tensor) -> Tensor:
    """(n, height, width, 3) bytes as (n, 3, height, width): nothing is copied, and the layout is channels_last."""
    return (
        inputs.permute(0, 3, 1, 2)
        if inputs.dtype == torch.uint8 and inputs.ndim == 4 and inputs.shape[3] == 3
        else inputs
    )


def _rectangles(indices: list[int], source: FileSource, size: int, share: int) -> list[tuple[list[int], int, int]]:
    """fast.ai's: images of like shape in one batch, cut to their mean shape. The shorter side has ``size`` pixels."""
    aspects = {index: source.aspect(index) for index in indices}
    ordered = sorted(indices, key=lambda index: (aspects[index], index))
    found = []
    for first in range(0, len(ordered), share):
        group = ordered[first : first + share]
        aspect = float(np.mean([aspects[index] for index in group]))
        long = max(size, round(size * max(aspect, 1 / aspect) / 32) * 32)
        found.append((group, size, long) if aspect >= 1 else (group, long, size))
    return found

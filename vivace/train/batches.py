"""What a training sees, step by step: the same global batch on every layout, and each rank's share of it.

A batch follows from the step and the seed alone, so the position in the data is the step: nothing else must be saved.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from vivace.errors import UserError
from vivace.parallel.context import positions_of
from vivace.parallel.mesh import Meshes
from vivace.train.settings import TrainSettings

__all__ = ["Batches", "make_batches"]

_WRONG = 0.1  # share of the made-up tokens that follow no rule: what a model cannot learn


class Batches(Protocol):
    def share(self, step: int) -> tuple[Tensor, Tensor]:
        """This rank's inputs and targets of a step."""


class _Samples(Protocol):
    def __call__(self, number: int) -> tuple[Tensor, Tensor]: ...


def make_batches(settings: TrainSettings, meshes: Meshes) -> Batches:
    per_rank = settings.global_batch // settings.layout.data
    first = meshes.data_rank * per_rank
    if settings.model != "gpt":
        return _Shares(_made_up_images(settings), settings.global_batch, range(first, first + per_rank), meshes)
    samples = _made_up_tokens(settings) if settings.data.tokens is None else _TokenFile(settings)
    places = positions_of(settings.data.seq_len, meshes.context.get_local_rank(), settings.layout.context)

    def cut(number: int) -> tuple[Tensor, Tensor]:
        inputs, targets = samples(number)
        return inputs[places], targets[places]

    return _Shares(cut, settings.global_batch, range(first, first + per_rank), meshes)


class _Shares:
    def __init__(self, samples: _Samples, global_batch: int, mine: range, meshes: Meshes) -> None:
        self._samples, self._global_batch, self._mine, self._device = samples, global_batch, mine, meshes.device

    def share(self, step: int) -> tuple[Tensor, Tensor]:
        found = [self._samples(step * self._global_batch + index) for index in self._mine]
        inputs, targets = (torch.stack(each) for each in zip(*found, strict=True))
        return inputs.to(self._device, non_blocking=True), targets.to(self._device, non_blocking=True)


def _made_up_tokens(settings: TrainSettings) -> _Samples:
    """Each sequence counts on in steps of its own, with some wrong tokens: a small model learns it in minutes."""
    vocab, length, seed = settings.sizes.vocab, settings.data.seq_len + 1, settings.data.seed

    def sample(number: int) -> tuple[Tensor, Tensor]:
        random = _generator(seed, number)
        start = torch.randint(vocab, (), generator=random)
        stride = torch.randint(1, 8, (), generator=random)
        tokens = (start + stride * torch.arange(length)) % vocab
        wrong = torch.rand(length, generator=random) < _WRONG
        tokens = torch.where(wrong, torch.randint(vocab, (length,), generator=random), tokens)
        return tokens[:-1], tokens[1:]

    return sample


class _TokenFile:
    """Windows of a file of tokens, without overlap, in another order every epoch."""

    def __init__(self, settings: TrainSettings) -> None:
        assert settings.data.tokens is not None
        self._vocab, self._length, self._seed = settings.sizes.vocab, settings.data.seq_len, settings.data.seed
        path = Path(settings.data.tokens)
        try:
            self._tokens = np.memmap(path, dtype=np.uint16 if self._vocab <= 2**16 else np.uint32, mode="r")
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read as tokens: {error}", hint="--set data.tokens=FILE") from None
        self._windows = (len(self._tokens) - 1) // self._length
        if self._windows < 1:
            raise UserError(f"{path} has {len(self._tokens)} tokens: not one sequence of {self._length}")
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def __call__(self, number: int) -> tuple[Tensor, Tensor]:
        epoch, place = divmod(number, self._windows)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng([self._seed, epoch]).permutation(self._windows)
        start = int(self._order[place]) * self._length
        window = torch.from_numpy(self._tokens[start : start + self._length + 1].astype(np.int64))
        if int(window.max()) >= self._vocab:
            raise UserError(
                f"the file has the token {int(window.max())}, and the model knows {self._vocab}",
                hint=f"--set sizes.vocab={int(window.max()) + 1} or more",
            )
        return window[:-1], window[1:]


def _made_up_images(settings: TrainSettings) -> _Samples:
    """A pattern for each class, and noise."""
    size, classes, seed = settings.data.image_size, settings.data.classes, settings.data.seed
    patterns = torch.randn(classes, 3, size, size, generator=_generator(seed, -1), dtype=torch.float64)
    dtype = torch.float64 if settings.engine.precision == "fp64" else torch.float32

    def sample(number: int) -> tuple[Tensor, Tensor]:
        random = _generator(seed, number)
        label = torch.randint(classes, (), generator=random)
        noise = torch.randn(3, size, size, generator=random, dtype=torch.float64)
        return (patterns[label] + 2 * noise).to(dtype), label

    return sample


def _generator(seed: int, number: int) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(f"{seed}:{number}".encode()))

"""Where samples come from. A ``Source`` turns a list of keys into one batch on the CPU, in a loader's worker or not.

A sample follows from its key and the seed alone (its random crop, too), so neither the number of workers nor an
interruption changes what a training sees.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from vivace.errors import UserError
from vivace.recipes.decoding import Cut, check_decoder, decode, size_of
from vivace.recipes.own_code import is_own_code, load_function
from vivace.recipes.recipe import Recipe
from vivace.train.data import GeneratedImages, ImageFolder, ParquetImages, open_images
from vivace.train.data.images import BadImage

__all__ = ["EVALUATED", "DataError", "Fetched", "Key", "Source", "open_source"]

EVALUATED = -1
"""The epoch of a key that is for validation: nothing random."""
_NEIGHBOURS = 20  # of an unreadable training image: so many are tried in its place
_WRONG = 0.1  # share of the generated tokens that follow no rule
_GENERATED_CLASSES = 10
_GENERATED_ROWS = 2048


class DataError(UserError):
    """Something in the data, which one rank alone may meet: it must speak for itself."""


class Key(NamedTuple):
    """Sample ``number`` in ``epoch``; images of ``height`` by ``width``."""

    number: int
    epoch: int
    height: int = 0
    width: int = 0


class Fetched(NamedTuple):
    """A batch as it leaves a worker. Images: (n, height, width, 3) bytes, or files for nvJPEG with their ``cuts``."""

    inputs: Any
    targets: Tensor
    indices: Tensor
    skipped: tuple[str, ...] = ()
    """Images that could not be read, by their path."""
    cuts: tuple[Cut, ...] = ()


class Source(Protocol):
    classes: int | None

    def __len__(self) -> int: ...

    def __getitem__(self, keys: list[Key]) -> Fetched: ...


def open_source(recipe: Recipe, train: bool) -> Source | None:
    """The training data, or those for validation; None where there are none."""
    data = recipe.data
    name = data.train if train else data.val
    if data.kind == "tokens":
        if not train and name is None and not data.val_share:
            return None
        return _tokens(recipe, name or data.train or "", train)
    if name is None:
        return None
    key = "data.train" if train else "data.val"
    if is_own_code(name):
        return OwnSource(load_function(name, key)(), key, data.classes)
    if data.kind == "own":
        raise UserError(f"{key}: {name} is not FILE.py:FUNCTION", hint="data.kind = images or tokens")
    if name == "generated":
        count = data.samples if train else min(data.samples, 512)
        classes = data.classes or _GENERATED_CLASSES
        pool = min(count, max(64, 2 * classes)) if data.image_size < 128 else 64
        return GeneratedSource(GeneratedImages(count, data.image_size, classes, recipe.seed * 2 + train, pool=pool))
    check_decoder(data.decoder)
    return FileSource(recipe, open_images(name))


class FileSource:
    """Images from files. One that cannot be read: its neighbour stands in for it in training, nothing in validation."""

    def __init__(self, recipe: Recipe, images: ImageFolder | ParquetImages) -> None:
        self.images = images
        self.classes: int | None = recipe.data.classes or images.num_classes
        self.decoder, self.resize, self.seed = recipe.data.decoder, recipe.validation.resize, recipe.seed
        self.scale = recipe.augment.scale if recipe.augment.crop == "resized" and not recipe.data.resident else None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, keys: list[Key]) -> Fetched:
        found, skipped = [], []
        for key in keys:
            for index in self._candidates(key):
                try:
                    found.append((*self._image(index, key), index))
                    break
                except BadImage as error:
                    skipped.append(error.message)
        inputs, cuts, labels, indices = zip(*found, strict=True) if found else ((), (), (), ())
        targets, rows = torch.tensor(labels, dtype=torch.long), torch.tensor(indices, dtype=torch.long)
        if self.decoder == "nvjpeg":
            files = [torch.frombuffer(bytearray(each), dtype=torch.uint8) for each in inputs]
            return Fetched(files, targets, rows, tuple(skipped), cuts)
        nothing = np.empty((0, keys[0].height, keys[0].width, 3), dtype=np.uint8)
        pixels = torch.from_numpy(np.stack(inputs) if found else nothing)
        return Fetched(pixels, targets, rows, tuple(skipped))

    def _candidates(self, key: Key) -> list[int]:
        if key.epoch == EVALUATED:
            return [key.number]
        return [(key.number + offset) % len(self) for offset in range(_NEIGHBOURS)]

    def _image(self, index: int, key: Key) -> tuple[Any, Cut, int]:
        data, label, origin = self.images.read(index)
        evaluated = key.epoch == EVALUATED
        seed = zlib.crc32(f"{self.seed}:{key.epoch}:{index}".encode())
        cut = Cut(key.height, key.width, None if evaluated else self.scale, seed, self.resize if evaluated else 1.0)
        return (data if self.decoder == "nvjpeg" else decode(data, origin, cut, self.decoder)), cut, label

    def aspect(self, index: int) -> float:
        """Width by height, from the head of the file; 1 where it cannot be read."""
        try:
            width, height = size_of(*self.images.read(index)[::2])
        except BadImage:
            return 1.0
        return width / height


class GeneratedSource:
    """Images from a small pool that costs nothing to read."""

    def __init__(self, images: GeneratedImages) -> None:
        self.classes: int | None = images.num_classes
        self._length = len(images)
        pool = [images[index] for index in range(images.pool)]
        self._images = torch.from_numpy(np.stack([image for image, _ in pool]))
        self._labels = torch.tensor([label for _, label in pool])

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, keys: list[Key]) -> Fetched:
        indices = torch.tensor([key.number for key in keys])
        rows = indices % len(self._labels)
        return Fetched(self._images[rows], self._labels[rows], indices)


class OwnSource:
    """A map-style data set of the user's: (inputs, target) by index."""

    def __init__(self, dataset: Any, key: str, classes: int | None) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise UserError(
                f"{key}: the function gave a {type(dataset).__name__}", hint="a data set with [index] and len()"
            )
        self.dataset, self.classes = dataset, classes or getattr(dataset, "num_classes", None)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, keys: list[Key]) -> Fetched:
        inputs, targets = default_collate([self.dataset[key.number] for key in keys])
        return Fetched(inputs, targets, torch.tensor([key.number for key in keys]))


class TokenSource:
    """Windows of a row of tokens, without overlap; the targets are the inputs one further."""

    classes: int | None = None

    def __init__(self, tokens: np.ndarray, seq_len: int, vocab: int | None, name: str, reserved: int = 0) -> None:
        """``reserved``: so many of the vocabulary's last tokens may not be in the data."""
        self._tokens, self._seq_len, self._vocab, self._reserved = tokens, seq_len, vocab, reserved
        self._windows = (len(tokens) - 1) // seq_len
        if self._windows < 1:
            raise UserError(
                f"{name} has {len(tokens)} tokens: not one sequence of {seq_len}", hint="--set data.seq_len=…"
            )

    def __len__(self) -> int:
        return self._windows

    def __getitem__(self, keys: list[Key]) -> Fetched:
        indices = np.array([key.number for key in keys])
        places = indices[:, None] * self._seq_len + np.arange(self._seq_len + 1)
        windows = torch.from_numpy(self._tokens[places].astype(np.int64))
        if self._vocab is not None and int(windows.max()) >= self._vocab - self._reserved:
            mask = ", whose last token is the mask" if self._reserved else ""
            raise DataError(
                f"the data have the token {int(windows.max())}, and model.sizes.vocab is {self._vocab}{mask}",
                hint=f"--set model.sizes.vocab={int(windows.max()) + 1 + self._reserved} or more",
            )
        return Fetched(windows[:, :-1], windows[:, 1:], torch.from_numpy(indices))


class GeneratedTokens:
    """Each sequence counts on in steps of its own, with some wrong tokens: a small model learns it in minutes.

    They come from a pool that is made once: reading them costs nothing.
    """

    classes: int | None = None

    def __init__(self, count: int, seq_len: int, vocab: int, seed: int) -> None:
        self._count = count
        rows, length = min(count, _GENERATED_ROWS), seq_len + 1
        draws = np.random.default_rng(seed)
        starts, strides = draws.integers(vocab, size=(rows, 1)), draws.integers(1, 8, size=(rows, 1))
        tokens = (starts + strides * np.arange(length)) % vocab
        wrong = draws.random((rows, length)) < _WRONG
        self._rows = torch.from_numpy(np.where(wrong, draws.integers(vocab, size=(rows, length)), tokens))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, keys: list[Key]) -> Fetched:
        indices = torch.tensor([key.number for key in keys])
        rows = self._rows[indices % len(self._rows)]
        return Fetched(rows[:, :-1], rows[:, 1:], indices)


def _tokens(recipe: Recipe, name: str, train: bool) -> Source:
    data = recipe.data
    vocab, reserved = recipe.model.sizes.vocab, int(recipe.objective.name == "masked")
    if is_own_code(name):
        key = "data.train" if train else "data.val"
        return OwnSource(load_function(name, key)(), key, None)
    if name == "generated":
        return GeneratedTokens(
            data.samples if train else min(data.samples, 256), data.seq_len, vocab - reserved, 2 * recipe.seed + train
        )
    tokens = _token_file(Path(name), vocab - reserved)
    if data.val_share:
        border = len(tokens) - int(len(tokens) * data.val_share)
        tokens = tokens[:border] if train else tokens[border:]
    return TokenSource(tokens, data.seq_len, vocab if recipe.model.name == "gpt" else None, name, reserved)


def _token_file(path: Path, vocab: int) -> np.ndarray:
    """.txt: each byte is a token; .npy: as numpy says; others: uint16, or uint32 for a large vocabulary."""
    try:
        if path.suffix == ".txt":
            return np.frombuffer(path.read_bytes(), dtype=np.uint8)
        if path.suffix == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False)
        return np.memmap(path, dtype=np.uint16 if vocab <= 2**16 else np.uint32, mode="r")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as tokens: {error}", hint="--set data.train=FILE, or generated"
        ) from None

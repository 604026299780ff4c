"""Labelled images: generated ones, and a folder per class (``parquet.py`` reads a parquet file of JPEGs).

All of them are map-style data sets of (image, label) with ``num_classes``, safe in DataLoader workers. They
read files and write nothing. Called by ``examples/dlojz.py`` and the trainer.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import Dataset

from vivace.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "DATA_HINT",
    "BadImage",
    "GeneratedImages",
    "ImageFolder",
    "Transform",
    "decode_image",
    "train_and_val_paths",
]

Transform = Callable[[Any], Any]

DATA_HINT = "pip install 'vivace[data]'"
EXTENSIONS = {".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
VALIDATION_NAMES = ("val", "validation", "test")


class GeneratedImages(Dataset[tuple[Any, int]]):
    """Images that cost almost nothing to load: a small pool is made once, then handed out again and again.

    Image ``i`` is the same for the same ``seed``. A class is a pattern of 4 x 4 coloured tiles, the same
    for every seed, under noise that depends on it: so a network can learn them, and prove it on images of
    another seed. They come as (size, size, 3) arrays of bytes, already of the size that is wanted: nothing
    to decode, crop or resize.
    """

    def __init__(
        self,
        length: int,
        size: int = 224,
        num_classes: int = 1000,
        seed: int = 123,
        transform: Transform | None = None,
        pool: int = 64,
    ) -> None:
        self.length = length
        self.num_classes = num_classes
        self.transform = transform
        noise = np.random.default_rng(seed)
        self.pool = min(pool, length)
        """So many images are different."""
        self._labels = [i % num_classes for i in range(self.pool)]
        self._images = [_noisy_tiles(label, size, noise) for label in self._labels]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if not 0 <= index < self.length:
            raise IndexError(f"image {index} of {self.length}")
        image, label = self._images[index % len(self._images)], self._labels[index % len(self._labels)]
        return (image if self.transform is None else self.transform(image)), label


class ImageFolder(Dataset[tuple[Any, int]]):
    """``root/<class>/**/<image file>``; classes are numbered in the order of their names.

    Give the ``classes`` of the training set to the validation set: a class without a validation image then
    keeps its number.
    """

    def __init__(
        self, root: str | Path, transform: Transform | None = None, classes: Sequence[str] | None = None
    ) -> None:
        self.root = Path(root)
        self.transform = transform
        if not self.root.is_dir():
            raise UserError(f"no folder {self.root}", hint="give a folder with one sub-folder per class")
        self.classes = _class_names(self.root, classes)
        self.num_classes = len(self.classes)
        self.samples = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in sorted((self.root / name).rglob("*"))
            if path.suffix.lower() in EXTENSIONS
        ]
        if not self.samples:
            raise UserError(
                f"no image under {self.root}",
                hint=f"give a folder with one sub-folder per class, of {', '.join(sorted(EXTENSIONS))} files",
            )

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        data, label, path = self.read(index)
        image = decode_image(data, path)
        return (image if self.transform is None else self.transform(image)), label

    def read(self, index: int) -> tuple[bytes, int, str]:
        """The file as it is, its label, and its path."""
        path, label = self.samples[index]
        try:
            return path.read_bytes(), label, str(path)
        except OSError as error:
            raise BadImage(f"{path} cannot be read: {error.strerror}") from None


class BadImage(UserError):
    """One image that cannot be read or decoded; others may be well."""


def decode_image(data: bytes, origin: object) -> Image:
    """Bytes of an image file to an RGB image; ``origin`` names it in the error."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UserError("reading images needs Pillow", hint=DATA_HINT) from error
    try:
        return Image.open(io.BytesIO(data)).convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # OSError: the file is cut short
        raise BadImage(f"{origin} is not a readable image ({error})", hint="remove or mend it") from error


def train_and_val_paths(path: str | Path) -> tuple[Path, Path | None]:
    """Where training and validation data are by convention; None when no validation data is found.

    ``data`` with a sub-folder ``train`` -> ``data/train`` and ``data/val`` (or validation, or test);
    ``data/train`` -> itself and ``data/val``; ``data/train.parquet`` -> itself and ``data/val.parquet``.
    """
    path = Path(path)
    if (path / "train").is_dir():
        path = path / "train"
    if "train" not in path.name:
        return path, None
    candidates = (path.with_name(path.name.replace("train", name)) for name in VALIDATION_NAMES)
    return path, next((candidate for candidate in candidates if candidate.exists()), None)


def _noisy_tiles(label: int, size: int, noise: np.random.Generator) -> np.ndarray:
    tiles = np.random.default_rng(label).integers(0, 128, (4, 4, 3), dtype=np.uint8)
    side = -(-size // 4)  # rounded up, for a size that is not a multiple of 4
    pattern = tiles.repeat(side, axis=0).repeat(side, axis=1)[:size, :size]
    return pattern + noise.integers(0, 128, (size, size, 3), dtype=np.uint8)


def _class_names(root: Path, expected: Sequence[str] | None) -> list[str]:
    found = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if expected is None:
        return found
    unknown = sorted(set(found) - set(expected))
    if unknown:
        raise UserError(
            f"{root} holds classes that the training data does not: {', '.join(unknown[:5])}",
            hint="use the same class folders for training and validation",
        )
    return list(expected)

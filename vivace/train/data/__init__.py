"""Data sets of labelled images and their transforms. ``open_images`` picks the reader of a path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vivace.train.data.images import GeneratedImages, ImageFolder, Transform, train_and_val_paths
from vivace.train.data.parquet import ParquetImages

__all__ = ["GeneratedImages", "ImageFolder", "ParquetImages", "open_images", "train_and_val_paths"]


def open_images(
    path: str | Path, transform: Transform | None = None, classes: Sequence[str] | None = None
) -> ImageFolder | ParquetImages:
    """A ``.parquet`` file, or a folder with one sub-folder per class (numbered as in ``classes``)."""
    if Path(path).suffix == ".parquet":
        return ParquetImages(path, transform)
    return ImageFolder(path, transform, classes)

"""Labelled images from a parquet file: columns ``image`` (bytes of a JPEG or PNG) and ``label`` (integer).

Reads the file, writes nothing. pyarrow is imported when a data set is opened. Every process opens the file
for itself, so DataLoader workers never share a handle. Called through ``vivace.train.data`` by
``examples/dlojz.py`` and the trainer.
"""

from __future__ import annotations

import bisect
import itertools
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from vivace.errors import UserError
from vivace.train.data.images import DATA_HINT, Transform, decode_image

__all__ = ["ParquetImages"]

CACHE_BYTES = 512 * 2**20


class ParquetImages(Dataset[tuple[Any, int]]):
    """A file that fits the cache is read once per process; of a larger one the last row groups used are kept.

    The ``image`` column may also be the struct of bytes and path that Hugging Face writes.
    """

    def __init__(self, path: str | Path, transform: Transform | None = None, cache_bytes: int = CACHE_BYTES) -> None:
        self.path = Path(path)
        self.transform = transform
        self.cache_bytes = cache_bytes
        self._cache: OrderedDict[int, Any] = OrderedDict()
        self._file: Any = None
        self._file_pid: int | None = None
        self._labels: list[int] = self._read_labels()
        self.num_classes = max(self._labels, default=-1) + 1
        metadata = self._open().metadata
        rows = (metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
        self._ends = list(itertools.accumulate(rows))  # the row after the last one of each row group

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        data, label, origin = self.read(index)
        image = decode_image(data, origin)
        return (image if self.transform is None else self.transform(image)), label

    def read(self, index: int) -> tuple[bytes, int, str]:
        """The bytes as they are, their label, and the row's name."""
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        group = bisect.bisect_right(self._ends, index)
        row = index - (self._ends[group - 1] if group else 0)
        value = self._images_of(group)[row].as_py()
        data = value["bytes"] if isinstance(value, dict) else value
        return data or b"", self._labels[index], f"row {index} of {self.path}"

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker gets the description and opens the file itself.
        return {**self.__dict__, "_cache": OrderedDict(), "_file": None, "_file_pid": None}

    def _open(self) -> Any:
        """The file as this process has opened it: a handle and a cache from before a fork are left alone."""
        if self._file_pid != os.getpid():
            self._file = _parquet().ParquetFile(self.path, memory_map=True)
            self._cache = OrderedDict()
            self._file_pid = os.getpid()
        return self._file

    def _images_of(self, group: int) -> Any:
        file = self._open()
        if group not in self._cache:
            # One thread: pyarrow's pool does not survive a fork, and the workers are the parallelism.
            self._cache[group] = file.read_row_group(group, columns=["image"], use_threads=False).column("image")
            while len(self._cache) > 1 and sum(column.nbytes for column in self._cache.values()) > self.cache_bytes:
                self._cache.popitem(last=False)
        self._cache.move_to_end(group)
        return self._cache[group]

    def _read_labels(self) -> list[int]:
        if not self.path.is_file():
            raise UserError(f"no file {self.path}", hint="give a .parquet file with columns image and label")
        _parquet()  # before the try: a missing pyarrow has its own message
        try:
            file = self._open()
        except Exception as error:  # pyarrow's errors depend on what is wrong with the file
            raise UserError(f"{self.path} is not a readable parquet file ({error})") from error
        columns = file.schema_arrow.names
        missing = [name for name in ("image", "label") if name not in columns]
        if missing:
            raise UserError(
                f"{self.path} has no column {' and no column '.join(missing)} (it has {', '.join(columns)})",
                hint="name the columns image (bytes of a JPEG or PNG) and label (integer)",
            )
        labels: list[int] = file.read(columns=["label"], use_threads=False).column("label").to_pylist()
        return labels


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UserError("reading parquet needs pyarrow", hint=DATA_HINT) from error
    return pyarrow.parquet

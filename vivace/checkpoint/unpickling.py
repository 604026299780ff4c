"""Reads DCP's ``.metadata``, which is a pickle, through a list of what may be in it.

``torch.distributed.checkpoint`` reads it with ``pickle.load`` (and plain values with ``weights_only=False``): a file
from a stranger runs what it likes. Here a name that is not on the list is refused before anything is called.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex

from vivace.checkpoint.errors import Damage, Damaged, DamageKind, Refused, RefusedError

__all__ = ["read_index"]

_METADATA, _FILES = "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"
_ALLOWED = {
    (_METADATA, "Metadata"), (_METADATA, "MetadataIndex"), (_METADATA, "TensorStorageMetadata"),
    (_METADATA, "BytesStorageMetadata"), (_METADATA, "ChunkStorageMetadata"), (_METADATA, "TensorProperties"),
    (_METADATA, "StorageMeta"), (_METADATA, "_MEM_FORMAT_ENCODING"), (_FILES, "_StorageInfo"),
    ("collections", "OrderedDict"), ("torch", "Size"), ("torch.serialization", "_get_layout"),
}  # fmt: skip


class _NotAllowed(pickle.UnpicklingError):
    """With the name that was asked for."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return super().find_class(module, name)
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        raise _NotAllowed(f"{module}.{name}")

    def persistent_load(self, _name: Any) -> Any:
        raise _NotAllowed("a persistent id")


def read_index(path: Path, data: bytes, sizes: dict[str, int]) -> Metadata:
    """``data`` are the bytes of ``path``; ``sizes``: the files it may point into.

    Raises ``RefusedError`` for what is not on the list, ``Damaged`` for what is no index.
    """
    try:
        metadata = _Unpickler(io.BytesIO(data)).load()
    except _NotAllowed as error:
        text = f"{path} asks for {error}, which no index of a checkpoint needs: it is not opened"
        raise RefusedError(Refused.UNSAFE, text, (path,)) from None
    except Exception as error:  # pickle meets damage with many kinds of errors
        raise Damaged(Damage(DamageKind.INDEX, path.name, "cannot be read")) from error
    _check(metadata, path, sizes)
    return metadata


def _check(metadata: Any, path: Path, sizes: dict[str, int]) -> None:
    if not isinstance(metadata, Metadata) or not isinstance(metadata.storage_data, dict):
        raise Damaged(Damage(DamageKind.INDEX, path.name, "is no index of a checkpoint"))
    for index, place in metadata.storage_data.items():
        name, offset, length = (getattr(place, field, None) for field in ("relative_path", "offset", "length"))
        if not isinstance(index, MetadataIndex) or not isinstance(offset, int) or not isinstance(length, int):
            raise Damaged(Damage(DamageKind.INDEX, path.name, "has an entry of another kind"))
        if name not in sizes:
            raise RefusedError(Refused.UNSAFE, f"{path} points to {name!r}, which is not in the manifest", (path,))
        if offset < 0 or length < 0 or offset + length > sizes[name]:
            raise Damaged(Damage(DamageKind.INDEX, path.name, f"points behind the end of {name}"))

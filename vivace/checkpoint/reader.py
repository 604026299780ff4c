"""DCP's reader and planner without their blind trust: the index comes checked, plain values are never executed, and
what does not fit the model is refused by name, before anything is loaded."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import DefaultLoadPlanner, FileSystemReader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan, ReadItem

from vivace.checkpoint.errors import Refused, RefusedError
from vivace.checkpoint.plain import from_bytes

__all__ = ["CarefulPlanner", "CheckedReader", "causes"]

_NAMED = 3  # so many names in a sentence


class CheckedReader(FileSystemReader):
    def __init__(self, folder: Path, metadata: Metadata) -> None:
        super().__init__(folder)
        self._checked = metadata

    def read_metadata(self) -> Metadata:
        """No other argument: DCP must not look for an index of each rank when this one does not suit it."""
        if getattr(self._checked, "storage_meta", None) is None:
            self._checked.storage_meta = StorageMeta()
        return self._checked


class CarefulPlanner(DefaultLoadPlanner):
    """``partial``: what the checkpoint has and nobody asked for is left out without an error."""

    def __init__(self, folder: Path, partial: bool = False) -> None:
        super().__init__()
        self.folder, self.partial = folder, partial

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        saved = self.metadata.state_dict_metadata
        missing = sorted(self.state_dict.keys() - saved.keys())
        if missing:
            raise self._refusal(f"has no {_some(missing)}")
        for name, value in self.state_dict.items():
            self._compare(name, value, saved[name])
        return super().create_local_plan()

    def _compare(self, name: str, value: Any, saved: Any) -> None:
        if isinstance(value, torch.Tensor) != isinstance(saved, TensorStorageMetadata):
            kinds = ("a plain value", "a tensor")
            has, is_ = kinds[isinstance(saved, TensorStorageMetadata)], kinds[isinstance(value, torch.Tensor)]
            raise self._refusal(f"has {has} as {name}, which is {is_} here")
        if not isinstance(value, torch.Tensor):
            return
        if tuple(value.shape) != tuple(saved.size):
            raise self._refusal(f"has {name} with the shape {tuple(saved.size)}, which is {tuple(value.shape)} here")
        if value.dtype != saved.properties.dtype:
            raise self._refusal(f"has {name} in {saved.properties.dtype}, which is {value.dtype} here")

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """On the first rank: what no rank reads would be lost without a word (an optimizer, an average)."""
        assert self.metadata is not None
        read = {item.dest_index.fqn for plan in global_plan for item in plan.items}
        saved = self.metadata.state_dict_metadata
        left = sorted(name for name in saved.keys() - read if not _is_empty(saved[name]))
        if left and not self.partial:
            raise self._refusal(f"also has {_some(left)}, which nobody asked for (partial=True leaves it out)")
        return super().create_global_plan(global_plan)

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """As DCP's own, which says ``weights_only=False``."""
        name = read_item.dest_index.fqn
        try:
            plain = from_bytes(value.read())
        except pickle.UnpicklingError as error:
            text = f"{self.folder}: {name} holds more than tensors and plain values: it is not opened"
            raise RefusedError(Refused.UNSAFE, text, (self.folder,)) from error
        place: Any = self.original_state_dict
        path = self.mappings[name]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = plain

    def _refusal(self, text: str) -> RefusedError:
        return RefusedError(Refused.OTHER_MODEL, f"{self.folder} {text}", (self.folder,))


def causes(error: BaseException) -> Iterable[BaseException]:
    """What went wrong, on whatever rank; DCP wraps it all into one exception."""
    if not isinstance(error, CheckpointException):
        return [error]
    return [failure[0] for failure in error.failures.values()]


def _is_empty(saved: Any) -> bool:
    return isinstance(saved, TensorStorageMetadata) and 0 in tuple(saved.size)


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")

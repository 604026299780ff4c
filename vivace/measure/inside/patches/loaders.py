"""Batch fetches: the wait for the next batch, and the start of an epoch (where workers are forked)."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from vivace.measure.inside.batches import BatchReader
from vivace.measure.inside.flops import uncounted
from vivace.measure.inside.patches import in_place_of
from vivace.measure.inside.patches.creations import Creations
from vivace.measure.inside.recorder import Recorder

__all__ = ["install"]


def install(recorder: Recorder, seen: dict[str, Any], creations: Creations) -> None:
    """``seen`` collects the settings of the DataLoaders in use; it outlives them."""
    original_next = _BaseDataLoaderIter.__next__
    original_iter = DataLoader.__iter__

    def fetch(self: Any) -> Any:
        if not recorder.here():
            return original_next(self)
        recorder.mark("data+")
        recorder.inside = True
        size = None
        try:
            batch = uncounted(original_next, self)
            size = self._vivace_batches.size(batch) if hasattr(self, "_vivace_batches") else None
            return batch
        finally:
            recorder.inside = False
            recorder.mark("data-", size)

    def start(self: Any) -> Any:
        with contextlib.suppress(Exception):
            seen[str(id(self))] = {**_settings_of(self), "where": creations.place(self)}
        if not recorder.here():
            iterator = original_iter(self)
        else:
            recorder.mark("data+")
            recorder.inside = True
            try:
                iterator = uncounted(original_iter, self)
            finally:
                recorder.inside = False
                recorder.mark("data-")
        if not hasattr(iterator, "_vivace_batches"):
            with contextlib.suppress(Exception):
                iterator._vivace_batches = BatchReader(self.batch_size)  # type: ignore[attr-defined]
        return iterator

    _BaseDataLoaderIter.__next__ = in_place_of(original_next, fetch)  # type: ignore[method-assign]
    DataLoader.__iter__ = in_place_of(original_iter, start)  # type: ignore[method-assign]


def _settings_of(loader: Any) -> dict[str, Any]:
    return {
        "batch_size": loader.batch_size,
        "num_workers": loader.num_workers,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(loader.persistent_workers),
        "prefetch_factor": loader.prefetch_factor,
        "iterable": isinstance(loader.dataset, torch.utils.data.IterableDataset),
    }

"""Batch fetches: the wait for the next batch, and the start of an epoch (where workers are forked)."""

from __future__ import annotations

import contextlib
import time
from typing import Any
from weakref import WeakSet

import torch
from torch.utils.data import DataLoader, default_collate
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

from vivace.measure.inside.comparing.first_steps import FirstSteps
from vivace.measure.inside.counting.flops import uncounted
from vivace.measure.inside.facts.batches import BatchReader, host_mib
from vivace.measure.inside.facts.supply import Feed
from vivace.measure.inside.lines.workers import WorkerSwitch
from vivace.measure.inside.patches import in_place_of
from vivace.measure.inside.patches.creations import Creations
from vivace.measure.inside.steps.recorder import Recorder

__all__ = ["install"]


def install(
    recorder: Recorder,
    seen: dict[str, Any],
    creations: Creations,
    feed: Feed,
    first_steps: FirstSteps,
    workers_lines: WorkerSwitch | None = None,
) -> None:
    """``seen`` collects the settings of the DataLoaders in use and what they were waited for; it outlives them.
    ``feed`` is told which iterator the training takes its batches from, ``first_steps`` the batches themselves,
    ``workers_lines`` that workers are about to start."""
    original_next = _BaseDataLoaderIter.__next__
    original_iter = DataLoader.__iter__
    known: WeakSet[Any] = WeakSet()

    def fetch(self: Any) -> Any:
        if not recorder.here():
            batch = original_next(self)
            if first_steps.wanted:
                first_steps.note_batch(self, batch)
            return batch
        if torch.is_grad_enabled() and not recorder.evaluating:  # a validation may come between a batch and its step
            feed.note(self)
        recorder.mark("data+")
        recorder.inside = True
        size = None
        _note_unpinned(self)
        began_s = time.perf_counter()
        try:
            batch = uncounted(original_next, self)
            if first_steps.wanted:
                first_steps.note_batch(self, batch)
            _note_wait(self, time.perf_counter() - began_s)
            _note_size(self, batch)
            size = self._vivace_batches.size(batch) if hasattr(self, "_vivace_batches") else None
            return batch
        finally:
            recorder.inside = False
            recorder.mark("data-", size)

    def start(self: Any) -> Any:
        waits = None
        with contextlib.suppress(Exception):
            waits = _entry_of(self, seen, known, creations)
        if workers_lines is not None and self.num_workers:
            workers_lines.prepare()
        began_s = time.perf_counter()
        timed = recorder.here()
        if not timed:
            iterator = original_iter(self)
        else:
            recorder.mark("data+")
            recorder.inside = True
            try:
                iterator = uncounted(original_iter, self)
            finally:
                recorder.inside = False
                recorder.mark("data-")
        first_steps.note_epoch(self, iterator)
        if waits is not None:
            _note_start(iterator, waits, time.perf_counter() - began_s if timed else None)
        if not hasattr(iterator, "_vivace_batches"):
            with contextlib.suppress(Exception):
                iterator._vivace_batches = BatchReader(self.batch_size)  # type: ignore[attr-defined]
        return iterator

    _BaseDataLoaderIter.__next__ = in_place_of(original_next, fetch)  # type: ignore[method-assign]
    DataLoader.__iter__ = in_place_of(original_iter, start)  # type: ignore[method-assign]
    _tell_before_workers_end(feed)


def _tell_before_workers_end(feed: Feed) -> None:
    original: Any = getattr(_MultiProcessingDataLoaderIter, "_shutdown_workers", None)
    if original is None:
        return

    def shut_down(self: Any) -> Any:
        feed.ending(self)
        return original(self)

    _MultiProcessingDataLoaderIter._shutdown_workers = in_place_of(original, shut_down)  # type: ignore[method-assign]


def _entry_of(loader: Any, seen: dict[str, Any], known: WeakSet[Any], creations: Creations) -> dict[str, Any]:
    """One entry for all loaders that one line makes with the same settings over the same data: one an epoch, often."""
    settings, where = _settings_of(loader), creations.place(loader)
    key = repr((id(loader.dataset), where, settings))
    entry: dict[str, Any] = seen.setdefault(
        key,
        {
            **settings, "where": where, "made": 0, "epochs": 0, "batches": 0, "wait_ms": 0.0, "epoch_start_ms": 0.0,
            "unpinned": 0, "batch_mib": None,
        },
    )  # fmt: skip
    entry["made"] += loader not in known
    known.add(loader)
    return entry


def _note_start(iterator: Any, entry: dict[str, Any], seconds: float | None) -> None:
    """An epoch begins: its start lasts until the first batch is there. None: before the first backward, not timed."""
    if seconds is not None:
        entry["epochs"] += 1
        entry["epoch_start_ms"] += 1e3 * seconds
    with contextlib.suppress(Exception):
        iterator._vivace_waits = entry
        iterator._vivace_first = seconds is not None


def _note_wait(iterator: Any, seconds: float) -> None:
    entry = getattr(iterator, "_vivace_waits", None)
    if entry is None:
        return
    entry["batches"] += 1
    entry["epoch_start_ms" if iterator._vivace_first else "wait_ms"] += 1e3 * seconds
    iterator._vivace_first = False


def _note_unpinned(iterator: Any) -> None:
    """Batches that workers have done and the thread that pins memory has not: they pile up where it is the slowest."""
    with contextlib.suppress(Exception):  # private parts of torch, and platforms whose queues cannot be counted
        if iterator._pin_memory and not iterator._vivace_first:
            iterator._vivace_waits["unpinned"] += iterator._worker_result_queue.qsize()


def _note_size(iterator: Any, batch: Any) -> None:
    """Of one batch of a loader: the others are alike."""
    entry = getattr(iterator, "_vivace_waits", None)
    if entry is not None and entry["batch_mib"] is None:
        entry["batch_mib"] = host_mib(batch)


def _settings_of(loader: Any) -> dict[str, Any]:
    return {
        "batch_size": loader.batch_size,
        "num_workers": loader.num_workers,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(loader.persistent_workers),
        "prefetch_factor": loader.prefetch_factor,
        "iterable": isinstance(loader.dataset, torch.utils.data.IterableDataset),
        "epoch_batches": _epoch_batches(loader),
        "default_collate": loader.collate_fn is default_collate,
    }


def _epoch_batches(loader: Any) -> int | None:
    """None where only the end of the epoch tells."""
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return None
    with contextlib.suppress(Exception):  # the length is the user's own code
        return len(loader)
    return None

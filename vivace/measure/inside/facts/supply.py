"""How many batches the loader of the training has ready: read from its queues, in microseconds, never an error."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import ref

__all__ = ["Feed", "Moment", "Supply"]


class Supply(NamedTuple):
    """The queue of a loader with workers: batches that are there, and batches asked for and not there yet."""

    ready: int
    awaited: int
    workers: int
    left: int | None = None
    """Batches to come in this epoch, where that is known."""


class Moment(NamedTuple):
    """The supply at one end of the window, with what was fetched by then: their difference is what the window used."""

    ready: int
    batches: int
    epochs: int


class Feed:
    """The iterator that feeds the training: the last one asked for a batch, other than for a validation."""

    def __init__(self) -> None:
        self._iterator: Any = None
        self._asked_s = 0.0
        self.before_workers_end: Callable[[Sequence[int]], None] | None = None
        """Told their ids. A script that ends by itself ends them first."""

    def note(self, iterator: Any) -> None:
        self._iterator = ref(iterator)  # weak: what ends an epoch is that the script drops it
        self._asked_s = time.perf_counter()

    def idle_s(self) -> float:
        """Since the last batch was asked for."""
        return time.perf_counter() - self._asked_s

    def ending(self, iterator: Any) -> None:
        """Its workers are about to be told to end."""
        with contextlib.suppress(Exception):
            if self.before_workers_end is not None:
                self.before_workers_end([worker.pid for worker in iterator._workers])

    def supply(self) -> Supply | None:
        """None: no workers, a platform whose queues cannot be counted, or an epoch that is ending.

        Towards the end of an epoch no more tasks are given out, and any queue runs empty: that says nothing about
        whether the loader keeps up.
        """
        with contextlib.suppress(Exception):  # private parts of torch: whatever is not as we know it is not known
            iterator = self._iterator()
            asked, workers = len(iterator._task_info), iterator._num_workers
            if asked >= workers * iterator._prefetch_factor > 0:
                ready = _ready(iterator)
                return Supply(ready, max(0, asked - ready), workers, _left(iterator))
        return None

    def worker_pids(self) -> list[int]:
        """Of the processes that make its batches; none where the training process makes them."""
        with contextlib.suppress(Exception):
            return [worker.pid for worker in self._iterator()._workers]
        return []

    def moment(self) -> Moment | None:
        supply = self.supply()
        with contextlib.suppress(Exception):
            if supply is not None:
                entry = self._iterator()._vivace_waits
                return Moment(supply.ready, entry["batches"], entry["epochs"])
        return None


def _left(iterator: Any) -> int | None:
    with contextlib.suppress(Exception):  # a sampler, or an iterable data set, without a length
        return len(iterator._index_sampler) - iterator._num_yielded
    return None


def _ready(iterator: Any) -> int:
    """In the queue, and behind it: batches that came before their turn.

    Where a thread pins memory, what workers have done and it has not pinned is not ready: with large batches that
    thread may be the slowest of all, and its work piles up before it.
    """
    ready: int = iterator._data_queue.qsize()
    return ready + sum(len(task) > 1 for task in iterator._task_info.values())

"""How many batches a loader has ready: read from torch's own iterators, and from ones that are not as we know them."""

from __future__ import annotations

import queue
import time
from types import SimpleNamespace

import torch
from torch.utils.data import DataLoader, TensorDataset

from vivace.measure.inside.facts.supply import Feed, Supply
from vivace.measure.inside.patches.loaders import _note_unpinned


class Iterator(SimpleNamespace):
    """Two workers, three batches each; a thread pins memory."""

    def __init__(self, pinned: int, unpinned: int, tasks: dict[int, tuple]) -> None:
        super().__init__(
            _data_queue=queue.Queue(), _worker_result_queue=queue.Queue(), _task_info=tasks, _num_workers=2,
            _prefetch_factor=3, _vivace_waits={"batches": 7, "epochs": 1},
        )  # fmt: skip
        for _ in range(pinned):
            self._data_queue.put(None)
        for _ in range(unpinned):
            self._worker_result_queue.put(None)

    __hash__ = object.__hash__


def supply_of(iterator: object) -> Supply | None:
    feed = Feed()
    feed.note(iterator)
    return feed.supply()


def test_a_real_loader_with_workers_fills_its_queue():
    iterator = iter(DataLoader(TensorDataset(torch.arange(100)), 1, num_workers=2, prefetch_factor=3))
    deadline_s = time.monotonic() + 600
    while supply_of(iterator) != Supply(6, 0, 2, 100) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert supply_of(iterator) == Supply(6, 0, 2, 100)
    next(iterator)
    assert supply_of(iterator)[-1] == 99


def test_a_real_loader_at_the_end_of_its_epoch_is_not_known():
    iterator = iter(DataLoader(TensorDataset(torch.arange(8)), 1, num_workers=2, prefetch_factor=3))
    known = []
    for _ in iterator:
        known.append(supply_of(iterator) is not None)
    assert known == [True] * 2 + [False] * 6


def test_pinned_and_early_batches_are_ready_and_what_waits_to_be_pinned_is_not():
    tasks = {4: (0,), 5: (1, "early"), 6: (0,), 7: (1,), 8: (0,), 9: (1,)}
    iterator = Iterator(pinned=1, unpinned=2, tasks=tasks)
    assert supply_of(iterator) == Supply(2, 4, 2)


def test_batches_that_wait_to_be_pinned_are_counted():
    """Real workers, and no thread that pins (that needs a GPU): all that they make piles up."""
    iterator = iter(DataLoader(TensorDataset(torch.arange(100)), 1, num_workers=2, prefetch_factor=3))
    iterator._pin_memory, iterator._vivace_first, iterator._vivace_waits = True, False, {"unpinned": 0}
    deadline_s = time.monotonic() + 600
    while iterator._worker_result_queue.qsize() < 6 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    _note_unpinned(iterator)
    assert iterator._vivace_waits == {"unpinned": 6}
    iterator._vivace_first = True  # the first batch of an epoch says nothing
    _note_unpinned(iterator)
    _note_unpinned(object())  # an iterator that is not as we know it
    assert iterator._vivace_waits == {"unpinned": 6}
    iterator._pin_memory = False  # as it was, for its end


def test_unknown_without_workers_or_with_the_iterator_gone():
    assert Feed().supply() is None
    assert Feed().moment() is None
    assert supply_of(iter(DataLoader(TensorDataset(torch.arange(4))))) is None
    feed = Feed()
    feed.note(Iterator(0, 0, {}))  # nobody else holds it
    assert feed.supply() is None


def test_unknown_where_queues_cannot_be_counted():
    class Uncounted(queue.Queue):
        def qsize(self) -> int:
            raise NotImplementedError

    iterator = Iterator(0, 0, dict.fromkeys(range(6), (0,)))
    iterator._data_queue = Uncounted()
    assert supply_of(iterator) is None


def test_a_moment_knows_what_was_fetched():
    iterator = Iterator(3, 0, dict.fromkeys(range(6), (0,)))
    feed = Feed()
    feed.note(iterator)
    assert feed.moment() == (3, 7, 1)

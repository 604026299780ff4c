"""Batch memory used again: workers write each batch into shared memory that is mapped already, not into new memory."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.cores import usable_cores
from vivace.practices.engine.loaders import rare_waits, sends_much, sent_mib, spot, waited_for, waits_ms
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import idle_part_ms, launch_idle_ms, on_gpu, step_ms
from vivace.practices.engine.step_model import Shares, share_saved
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Loader, Measurement

_SMALLEST_SHARE = 0.05
# 33.3 ms of waits gone in 71.9 → 38.4 ms, 15 in 69.7 → 54.4 (resnet-3 in tune_h200_trials.csv), 2.8 of 18.9 (gan).
_SAVED = Shares(0.9, 0.3, 1.0)  # of the waits
# The pinning thread takes Python's lock to unmap: at 2.3 GiB/s on an H200 forward and backward took twice as long to
# launch as at 1.2.
_FELT_BY_LAUNCHES_GIB_PER_S = 2.0

_DEFAULT_PREFETCH = 2  # torch's own
_SMALLEST_TENSOR = 2**20  # bytes: less is made and mapped in no time
_MOST_MAPPINGS = 256  # in the training process: each holds a file descriptor, and 1024 are a usual limit
_MOST_COPYING_THREADS = 4
_SHARED_MEMORY = "/dev/shm"

_OWN_COLLATION = "the loader has a collate_fn of its own, which may keep what it made"
_ITERABLE = "the dataset is iterable: a worker may be given more batches than it has memory for"


class BatchMemory(Change):
    def loader(self, arguments: dict[str, Any]) -> None:
        if isinstance(arguments["collate_fn"], _IntoSlots):  # a framework made this loader from one of ours
            arguments["collate_fn"] = torch.utils.data.default_collate
        _check(arguments)
        slots = (arguments["prefetch_factor"] or _DEFAULT_PREFETCH) + 1
        arguments["collate_fn"] = _IntoSlots(slots, arguments["num_workers"])
        arguments["pin_memory"] = True  # the script gets the pinned copy, and never sees the memory that is reused
        self.applied(f"every worker writes its batches into the same shared memory, {slots} batches in turn")


def _check(arguments: Mapping[str, Any]) -> None:
    if not torch.cuda.is_available():
        raise NotApplicable("without a GPU batches are not pinned, and the script itself holds the shared memory")
    if arguments["num_workers"] == 0:
        raise NotApplicable("the loader has no workers: it uses no shared memory")
    if isinstance(arguments["dataset"], torch.utils.data.IterableDataset):
        raise NotApplicable(_ITERABLE)
    if not arguments.get("in_order", True):
        raise NotApplicable(
            "the loader hands out batches in any order: a worker may be given more than it has memory for"
        )
    if arguments["batch_size"] is None and arguments["batch_sampler"] is None:
        raise NotApplicable("the loader does not make batches: samples are sent as the dataset made them")
    if arguments["collate_fn"] not in (None, torch.utils.data.default_collate):
        raise NotApplicable(_OWN_COLLATION)


# -- in a worker ---------------------------------------------------------------------------------------------------


class _IntoSlots:
    """Collates as torch does, but stacks large tensors into shared memory that is kept: one slot a batch, in turn.

    A slot is written again only when its batch was copied to pinned memory. In order, a worker gets every
    ``num_workers``-th task, and beyond the first ``prefetch_factor * num_workers`` a task is sent when the batch that
    many tasks earlier is handed out, which is after it was pinned. So when a worker is at its task n, its task
    n - prefetch_factor is done with, and ``prefetch_factor`` slots would do; there is one more, to be safe.
    A new epoch of persistent workers begins when all have answered, behind their last batch in the same queue, through
    the pinning thread: nothing is in flight then, also when the script left the epoch before in the middle. Workers
    that are not persistent are new ones, with slots of their own. A batch that fails takes no slot or leaves it unused.
    """

    def __init__(self, slots: int, workers: int) -> None:
        self.slots, self.workers = slots, workers
        self.most_tensors = max(1, _MOST_MAPPINGS // (slots * workers))
        self.kept: dict[tuple[int, int], torch.UntypedStorage] = {}  # by slot, and number of the tensor in the batch
        self.turn = -1
        self.tensors = 0  # the most that a batch had in slots
        self.in_slots: list[torch.Tensor] = []  # of the batch being made

    def __call__(self, samples: list[Any]) -> Any:
        from torch.utils.data._utils.collate import collate, collate_tensor_fn, default_collate_fn_map

        in_worker = torch.utils.data.get_worker_info() is not None
        if not in_worker or default_collate_fn_map.get(torch.Tensor) is not collate_tensor_fn:
            return torch.utils.data.default_collate(samples)
        self.turn = (self.turn + 1) % self.slots
        self.in_slots = []
        batch = collate(samples, collate_fn_map={**default_collate_fn_map, torch.Tensor: self._stack})
        if not self.in_slots:
            return batch
        if not _pinning_copies(batch):
            self._give_away()
            return batch
        self.tensors = max(self.tensors, len(self.in_slots))
        return _InSlots(batch, self.in_slots, self.tensors * self.slots * self.workers)

    def _stack(self, samples: list[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
        """``collate_tensor_fn``, with a storage of ours where it makes a new one."""
        from torch.utils.data._utils.collate import collate_tensor_fn

        first = samples[0]
        size = len(samples) * first.numel() * first.element_size()
        plain = type(first) is torch.Tensor and first.is_cpu and first.layout is torch.strided and not first.is_nested
        storage = self._slot(size) if plain and size >= _SMALLEST_TENSOR else None
        if storage is None:
            stacked: torch.Tensor = collate_tensor_fn(samples, collate_fn_map=collate_fn_map)
            return stacked
        out = first.new_empty(0).set_(storage, 0, (len(samples), *first.shape))  # type: ignore[call-overload]
        self.in_slots.append(out)
        return torch.stack(samples, 0, out=out)

    def _slot(self, size: int) -> torch.UntypedStorage | None:
        """None where there is no room for more memory that stays: torch then makes some for this batch."""
        place = (self.turn, len(self.in_slots))
        kept = self.kept.get(place)
        if kept is not None and kept.nbytes() >= size:
            return kept
        if len(self.in_slots) >= self.most_tensors or not _room_for(size * self.workers):
            return None
        self.kept[place] = torch.UntypedStorage._new_shared(size)
        return self.kept[place]

    def _give_away(self) -> None:
        """The script may come to hold this batch's shared memory: it is the script's, and the slot gets a new one."""
        for number in range(len(self.in_slots)):
            self.kept.pop((self.turn, number), None)


def _room_for(size: int) -> bool:
    """Every worker is about to keep as much, and a full file system ends a worker without an error: be modest."""
    try:
        return shutil.disk_usage(_SHARED_MEMORY).free > 4 * size
    except OSError:
        return False


def _pinning_copies(batch: Any) -> bool:
    """Whether torch's ``pin_memory`` reaches every tensor: it leaves objects that it does not know as they are, and
    those with a method of that name see to it themselves."""
    if isinstance(batch, (torch.Tensor, str, bytes, int, float, type(None))):
        return True
    if hasattr(batch, "pin_memory"):
        return False
    if isinstance(batch, Mapping):
        return all(_pinning_copies(item) for item in batch.values())
    return isinstance(batch, Sequence) and all(_pinning_copies(item) for item in batch)


# -- in the training process, on the thread of a loader that pins its batches --------------------------------------


class _InSlots:
    """A batch on its way from a worker. torch lets a batch of a type that it does not know pin itself."""

    def __init__(self, batch: Any, in_slots: list[torch.Tensor], mappings: int) -> None:
        self.batch, self.in_slots, self.mappings = batch, in_slots, mappings

    def pin_memory(self) -> Any:
        from torch.utils.data._utils.pin_memory import pin_memory

        with contextlib.suppress(Exception):  # without it the batch is as right, and only slower
            _keep_mapped(self.in_slots, self.mappings)
        return pin_memory(self.batch)


class _OfThisThread(threading.local):
    mappings: OrderedDict[int, torch.UntypedStorage] | None = None


_of_this_thread = _OfThisThread()


def _keep_mapped(tensors: list[torch.Tensor], most: int) -> None:
    """torch maps shared memory again for every batch, unless a storage that it mapped before is still alive.

    Each loader's iterator has a thread of its own, so what is kept ends with it.
    """
    mappings = _of_this_thread.mappings
    if mappings is None:
        mappings = _of_this_thread.mappings = OrderedDict()
        _copy_with(max(1, min(_MOST_COPYING_THREADS, usable_cores() // 4)))
    for tensor in tensors:
        storage = tensor.untyped_storage()
        mappings[storage.data_ptr()] = storage
        mappings.move_to_end(storage.data_ptr())
    while len(mappings) > most:  # slots that were replaced by larger ones
        mappings.popitem(last=False)


def _copy_with(threads: int) -> None:
    """Copies of this thread are shared by several. torch gives each thread a number of its own, and threads that come
    later the last number that was set anywhere: that one is put back, or it could change how others sum."""
    torch.get_num_threads()  # a thread that never asked takes the last number when it first does
    with ThreadPoolExecutor(1) as later:
        number = later.submit(torch.get_num_threads).result()
        torch.set_num_threads(threads)
        later.submit(torch.set_num_threads, number).result()


# -- finding -------------------------------------------------------------------------------------------------------


def find(m: Measurement) -> Found | None:
    loader = waited_for(m)
    if not on_gpu(m) or loader is None or loader.num_workers == 0 or not step_ms(m) or _applied(m):
        return None
    waits = 0.0 if rare_waits(m, loader) else waits_ms(m, loader)
    size = sent_mib(m, loader)
    rate = size / 1024 / (step_ms(m) / 1e3)
    launches = _launches_ms(m, rate) if loader.pin_memory else 0.0
    exposed = max(waits, launches)
    if exposed < _SMALLEST_SHARE * step_ms(m) or not sends_much(m, loader):
        return None
    return Found(
        exposed_ms=exposed,
        likely=share_saved(exposed, _SAVED),
        idle_ms=launches if launches > waits else 0.0,
        evidence={
            "loader_wait_ms": round(waits, 3),
            "launch_wait_ms": round(launches, 3),
            "batch_mib": round(size, 2),
            "gib_per_s": round(rate, 2),
            "num_workers": loader.num_workers,
        },
        says=_says(m, waits, launches, size, rate),
        where=spot(loader),
        why_not=_why_not(loader),
    )


def _launches_ms(m: Measurement, rate: float) -> float:
    """What the pinning thread keeps the launches waiting: all idle time between them at a high rate, else what was seen
    of a host that launches nothing."""
    return launch_idle_ms(m) if rate > _FELT_BY_LAUNCHES_GIB_PER_S else idle_part_ms(m, "stall")


def _says(m: Measurement, waits: float, launches: float, size: float, rate: float) -> str:
    if waits >= launches:
        return (
            f"every step waits {waits:.1f} of {step_ms(m):.1f} ms for a loader that sends {size:.0f} MiB per step, "
            f"{rate:.1f} GiB/s, each batch in new shared memory"
        )
    return (
        f"the GPU waits {launches:.1f} of {step_ms(m):.1f} ms for launches, while another thread of Python maps, "
        f"pins and unmaps {size:.0f} MiB of new shared memory a step, {rate:.1f} GiB/s"
    )


def _applied(m: Measurement) -> bool:
    answer = m.practices.get("batch_memory")
    return answer is not None and answer.applied


def _why_not(loader: Loader) -> str | None:
    if loader.iterable:
        return _ITERABLE
    return _OWN_COLLATION if loader.default_collate is False else None


PRACTICE = Practice(
    name="batch_memory",
    title="batch memory used again",
    family="loader",
    risk="exact",
    source="R1: asynchronous loading. Measured by vivace: batches of 147 MiB every 23 ms instead of 70 on an H200.",
    why=(
        "A worker makes new shared memory for every batch; the training process maps it, copies it to pinned memory "
        "on one thread, and unmaps it. All pages of it are set up twice, in the one process that more workers do not "
        "relieve. With large batches that limits the loader. Memory that is used again stays mapped, and several "
        "threads copy. Takes the shared memory of prefetch_factor + 1 batches a worker."
    ),
    by_hand=(
        "# send less: bytes from the workers, numbers on the GPU\n"
        "image = torch.from_numpy(pixels)                                    # uint8, in the dataset\n"
        "images = images.to(device, non_blocking=True).float().div_(255)     # in the loop; then normalise\n"
        "# or a collate_fn that stacks with out= into shared tensors which it keeps, prefetch_factor + 1 in turn,\n"
        "# and a list in the training process that keeps them mapped; copy each batch before it is used again"
    ),
    find=find,
    change=BatchMemory,
    order=22,
)

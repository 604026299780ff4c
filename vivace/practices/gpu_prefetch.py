"""Prefetch to the GPU: the next batch is copied on a side stream while the model computes on this one."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vivace.measure.inside.steps.recorder import waiting_for_a_batch
from vivace.practices.engine.batches import Batches, host_tensors
from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.loaders import spot, waited_for
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import copies_to_gpu, on_gpu, phase_ms, step_ms
from vivace.practices.engine.step_model import Less, likely_saved
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.02
_SMALLEST_MIB = 1.0


class SideStream:
    """Copies to one GPU, beside the stream that the model computes on."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)

    def send(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The copy, and the event after which it is whole."""
        with torch.cuda.stream(self.stream):
            # Not ``tensor.to``: that one is watched as a copy of the script's own, on the script's own stream.
            copy = torch.empty_like(tensor, device=self.device).copy_(tensor, non_blocking=True)
            return copy, self.stream.record_event()

    def hand_over(self, copy: torch.Tensor, whole: Any) -> None:
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(whole)
        copy.record_stream(stream)  # its memory is the side stream's: not to be reused while this one reads it


@dataclass
class _Sent:
    host: torch.Tensor
    version: int
    copy: torch.Tensor
    whole: Any


class GpuPrefetch(Change):
    """The script gets its batches as ever, on the host. Its own ``.to(device)`` then finds the copy already made.

    So whatever else it does with the host's tensors still works, and a tensor that it does not copy is not copied.
    What a loop copies is learnt from the batch before.
    """

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        # Of each loader, which tensors of its batches the script copies, by their number in the nesting.
        self.asked: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()
        self.readers: weakref.WeakSet[_Reader] = weakref.WeakSet()  # gone with the script's iterators
        self.side: Any = None  # known with the model's device

    def loader(self, arguments: dict[str, Any]) -> None:
        _check_gpu()
        arguments["pin_memory"] = True  # from pageable memory the host would have to wait for the copy

    def iterator(self, loader: Any, iterator: Any) -> Any:
        _check_gpu()
        if loader.num_workers == 0:
            raise NotApplicable("the loader has no workers: a batch fetched ahead would be made in the loop, too early")
        reader = _Reader(self, self.asked.setdefault(loader, set()))
        self.readers.add(reader)
        return Batches(iterator, reader.take)

    def inputs(self, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if self.side is None and (device := next(root.parameters()).device).type == "cuda":
            self.side = SideStream(device)
        return args, kwargs

    def arrived(self, tensor: torch.Tensor) -> torch.Tensor | None:
        sent = None
        for reader in self.readers:
            sent = reader.asked_for(tensor) or sent
        if sent is None or sent.version != tensor._version:  # not sent, or written to since
            return None
        with waiting_for_a_batch():
            self.side.hand_over(sent.copy, sent.whole)
        self.applied("the next batch is copied on a side stream")
        return sent.copy


def _check_gpu() -> None:
    if not torch.cuda.is_available():
        raise NotApplicable("there is no GPU to copy to")


class _Reader:
    """One epoch: holds one batch back, whose tensors are already on their way.

    All that is held is held here, so that an epoch that the script leaves early takes it along.
    """

    def __init__(self, change: GpuPrefetch, asked: set[int]) -> None:
        self.change, self.asked = change, asked
        self.numbers: dict[int, int] = {}  # id of a tensor of the batch in use → its number
        self.in_use: list[torch.Tensor] = []  # keeps those ids from being given to others
        self.sent: dict[int, _Sent] = {}  # by id of the host's tensor
        self.held: list[Any] = []  # at most one batch
        self.end: Exception | None = None  # what the fetch ahead ended with: told when its turn comes

    def take(self, iterator: Any) -> Any:
        self._give_up_what_nobody_asked_for()
        batch = self.held.pop() if self.held else self._fetch(iterator)
        tensors = host_tensors(batch)
        self.numbers = {id(tensor): number for number, tensor in enumerate(tensors)}
        self.in_use = tensors
        if self.change.side is not None and self.asked:
            self._fetch_ahead(iterator)
        return batch

    def asked_for(self, tensor: torch.Tensor) -> _Sent | None:
        """The script copies this tensor: what was sent of it, if it is of this reader's batch."""
        if (number := self.numbers.get(id(tensor))) is not None:
            self.asked.add(number)
        return self.sent.pop(id(tensor), None)

    def _fetch(self, iterator: Any) -> Any:
        if self.end is not None:
            raise self.end
        return next(iterator)

    def _fetch_ahead(self, iterator: Any) -> None:
        try:
            batch = self._fetch(iterator)
        except Exception as error:
            self.end = error
            return
        self.held.append(batch)
        for number, tensor in enumerate(host_tensors(batch)):
            if number in self.asked:
                self.sent[id(tensor)] = _Sent(tensor, tensor._version, *self.change.side.send(tensor))

    def _give_up_what_nobody_asked_for(self) -> None:
        for tensor in self.in_use:
            self.sent.pop(id(tensor), None)
        self.in_use, self.numbers = [], {}


def find(m: Measurement) -> Found | None:
    copies = copies_to_gpu(m)
    size = sum(copy.mib_per_step for copy in copies)
    exposed = min(phase_ms(m, "copy"), sum(copy.ms_per_step for copy in copies))
    if not on_gpu(m) or size < _SMALLEST_MIB or exposed < _SMALLEST_SHARE * step_ms(m):
        return None
    loader = waited_for(m)
    if loader is None:
        return None
    return Found(
        exposed_ms=exposed,
        # 1.03 to 1.06 on ResNet-50, all of the copy; 0.91 on a GAN whose host is the limit (engine/gains.csv).
        likely=likely_saved(m, *(Less(device_ms=exposed, host_ms=more * exposed) for more in (0.0, -1.0, 1.0))),
        evidence={
            "copy_ms": round(exposed, 3),
            "mib_per_step": round(size, 2),
            "num_workers": loader.num_workers,
        },
        says=f"the GPU waits {exposed:.1f} ms per step while {size:.1f} MiB are copied to it; it could compute instead",
        where=spot(loader),
        why_not=None if loader.num_workers else "the loader has no workers: ask for workers too",
    )


PRACTICE = Practice(
    name="gpu_prefetch",
    title="next batch copied to the GPU on a side stream",
    family="loader",
    risk="exact",
    source="R1: asynchronous loading. NVIDIA's data prefetcher (apex ImageNet example); timm's PrefetchLoader.",
    why=(
        "A GPU copies and computes at the same time, but only on two streams. On one stream the model waits until its "
        "batch has arrived. Sent ahead on a second stream, the next batch is there when the step begins. Worth it for "
        "large batches (images, video); takes the memory of one batch more. Needs workers and pinned memory."
    ),
    by_hand=(
        "side = torch.cuda.Stream()\n"
        "with torch.cuda.stream(side):                    # before the step on the batch in hand\n"
        "    following = [t.to(device, non_blocking=True) for t in next(batches)]\n"
        "…                                                # forward, backward, optimizer step\n"
        "torch.cuda.current_stream().wait_stream(side)\n"
        "for t in following: t.record_stream(torch.cuda.current_stream())"
    ),
    find=find,
    change=GpuPrefetch,
    order=26,
)

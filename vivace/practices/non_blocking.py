"""Non-blocking copies: the host queues the copy of a pinned batch and goes on, instead of waiting for it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from vivace.practices.engine.batches import Batches, host_tensors
from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import copies_to_gpu, on_gpu, phase_ms, step_ms
from vivace.practices.engine.step_model import Less, likely_saved
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.01


class NonBlocking(Change):
    """Only for tensors that a DataLoader handed out: nobody writes into those again. A pinned buffer that the script
    fills anew at every step must be copied before it is filled, so copies of such ones go on blocking."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.handed_out: dict[int, weakref.ref[torch.Tensor]] = {}  # by address: the script may copy a part of one

    def iterator(self, loader: Any, iterator: Any) -> Any:
        if not torch.cuda.is_available():
            raise NotApplicable("there is no GPU to copy to")
        if not loader.pin_memory:
            raise NotApplicable("the loader does not pin its batches: ask for pin_memory too")
        return Batches(iterator, self._take)

    def _take(self, iterator: Any) -> Any:
        batch = next(iterator)
        self.handed_out = {address: ref for address, ref in self.handed_out.items() if ref() is not None}
        for tensor in host_tensors(batch):
            self.handed_out[tensor.untyped_storage().data_ptr()] = weakref.ref(tensor)
        return batch

    def copy(self, tensor: torch.Tensor, arguments: dict[str, Any]) -> None:
        if self._is_of_a_batch(tensor) and tensor.is_pinned():
            arguments["non_blocking"] = True
            self.applied("copies of pinned batches to the GPU do not block the host")

    def _is_of_a_batch(self, tensor: torch.Tensor) -> bool:
        if tensor.layout is not torch.strided:
            return False
        handed_out = self.handed_out.get(tensor.untyped_storage().data_ptr())
        return handed_out is not None and handed_out() is not None


def find(m: Measurement) -> Found | None:
    pinned = copies_to_gpu(m, "Pinned")
    loaders = [loader for loader in m.loaders if loader.pin_memory]
    exposed = phase_ms(m, "copy")
    waits = m.host_phases_ms["copy"].mean if "copy" in m.host_phases_ms else None
    if not on_gpu(m) or not pinned or not loaders or exposed < _SMALLEST_SHARE * step_ms(m):
        return None
    # A copy that does not block is queued in microseconds: then the host has no part in the copy's time.
    took = sum(copy.ms_per_step for copy in pinned)
    if waits is None or waits < 0.5 * took:
        return None
    size = sum(copy.mib_per_step for copy in pinned)
    where = loaders[0].where
    return Found(
        exposed_ms=exposed,
        # The copy stays where it is on the GPU: only the host is freed. 0.97 on lightning_module (gains.csv: noise).
        likely=likely_saved(m, Less(waits, gap=0.5), Less(), Less(waits, 0.5 * exposed, gap=1.0)),
        evidence={
            "copy_ms": round(exposed, 3),
            "host_waits_for_copies_ms": round(waits, 3),
            "pinned_mib_per_step": round(size, 2),
        },
        says=f"the host waits {waits:.1f} ms per step until {size:.1f} MiB of pinned memory are copied to the GPU",
        where=(where.file, where.line) if where else None,
    )


PRACTICE = Practice(
    name="non_blocking",
    title="non-blocking copies to the GPU",
    family="loader",
    risk="exact",
    source="R1, R11: .to(device) makes the host wait. PyTorch tutorial on pin_memory and non_blocking.",
    why=(
        "A plain `.to(device)` makes the host wait until the copy is done, and with it for all the work queued before. "
        "From pinned memory the copy can be queued like a kernel: the host goes on and the GPU does not run dry. Needs "
        "pinned memory. The order of work on the GPU stays the same, and so do the numbers."
    ),
    by_hand="images = images.to(device, non_blocking=True)   # with DataLoader(…, pin_memory=True)",
    find=find,
    change=NonBlocking,
    order=25,
)

"""Preallocation: take the memory once, so that the allocator has room for every batch that follows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.new_shapes import allocates, allocations_ms, autotuner_empties_the_cache
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import on_gpu
from vivace.practices.engine.step_model import Shares, share_saved
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.practices.engine.probed import Probed
    from vivace.records.measurement import Measurement

_GIB = 2**30
_ROOM = 1.25  # times the peak that was seen: a longer batch may come
_MOST = 0.9  # of the card, or of what is free: libraries take memory beside the allocator


class Preallocate(Change):
    """Before the first forward, one large block is taken and given back to the allocator's cache. Later blocks are cut
    from it, and joined again when they are free."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        try:
            self.gib = float(argument) if argument is not None else None
        except ValueError:
            raise ValueError(f"{argument!r} is not a number of GiB") from None
        if self.gib is not None and not self.gib > 0:
            raise ValueError(f"{argument!r} is not a number of GiB")
        self.taken: set[torch.device] = set()

    def inputs(self, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        device = next(root.parameters()).device
        if device not in self.taken:
            self.taken.add(device)
            self._take(device)
        return args, kwargs

    def _take(self, device: torch.device) -> None:
        if device.type != "cuda":
            raise NotApplicable("the model is not on a GPU")
        free, _total = torch.cuda.mem_get_info(device)
        wanted = min(self.gib * _GIB if self.gib is not None else math.inf, _MOST * free)
        block = torch.empty(int(wanted), dtype=torch.uint8, device=device)
        del block
        self.applied(f"{wanted / _GIB:.1f} GiB taken before the first forward")


def find(m: Measurement) -> Found | None:
    return _found(m, None)


def find_probed(m: Measurement, probed: Probed) -> Found | None:
    return _found(m, probed)


def _found(m: Measurement, probed: Probed | None) -> Found | None:
    device = m.memory.device
    if not on_gpu(m) or device is None or not m.inputs_vary or not (device.alloc_retries or allocates(m)):
        return None
    if autotuner_empties_the_cache(m):
        return None  # a block that was taken would be given back too
    saved = allocations_ms(m, probed)
    calls = m.allocator.device_allocs if m.allocator is not None and allocates(m) else None
    gib = math.ceil(min(_ROOM * device.reserved_peak_gib, _MOST * device.total_gib))
    return Found(
        exposed_ms=saved,
        likely=share_saved(saved, Shares(0.5, 0.0, 1.0)),
        idle_ms=saved,
        evidence={
            "input_shapes": m.input_shapes,
            "driver_allocations": calls,
            "alloc_retries": device.alloc_retries,
            "reserved_peak_gib": round(device.reserved_peak_gib, 2),
            "allocated_peak_gib": round(device.allocated_peak_gib, 2),
        },
        says=f"inputs come in {m.input_shapes} shapes and {_happened(m, calls)}: {saved:.1f} ms per step",
        setting=f"preallocate={gib}",
        # Nearly all of the card is taken already: a block of that size would leave nothing to give.
        why_not="the card is full: use expandable_segments, or shorter batches" if _is_full(m) else None,
    )


def _happened(m: Measurement, calls: int | None) -> str:
    device, use = m.memory.device, m.allocator
    if calls and use is not None:
        return f"the allocator asked the driver for memory {calls / max(1, use.steps):.1f} times per step"
    return f"the allocator had to start again {device.alloc_retries if device else 0} times"


def _is_full(m: Measurement) -> bool:
    device = m.memory.device
    return device is not None and bool(device.alloc_retries)


def lines(gib: str) -> str:
    return (
        f"torch.empty(int({gib} * 2**30), dtype=torch.uint8, device=device)   # before the first batch; it is\n"
        "# freed at once, and the allocator keeps it. Or one forward and backward on a batch of the maximum length:\n"
        "model(longest).sum().backward(); optimizer.zero_grad(set_to_none=True)   # no optimizer step"
    )


PRACTICE = Practice(
    name="preallocate",
    title="memory taken once, before the first batch",
    family="memory",
    risk="exact",
    source="R13: preallocate memory for variable lengths; one forward and backward on a batch of the maximum length.",
    why=(
        "A longer batch needs larger blocks than those in the allocator's cache. It takes new ones from the driver, "
        "which waits for the GPU; when the card is full it gives all others back first. When enough memory is taken at "
        "the start, in one block or by running the longest batch first, every later batch fits into it. The memory is "
        "not there for other processes then."
    ),
    by_hand=lines("8"),
    find=find,
    find_probed=find_probed,
    change=Preallocate,
    argument="GiB",
    lines=lines,
    order=12,
    for_new_shapes=True,
)

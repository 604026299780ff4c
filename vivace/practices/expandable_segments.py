"""Expandable segments: the allocator grows its blocks instead of leaving holes between them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.new_shapes import allocates, allocations_ms, autotuner_empties_the_cache
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import on_gpu
from vivace.practices.engine.step_model import Shares, share_saved
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.practices.engine.probed import Probed
    from vivace.records.measurement import Measurement

_SETTING = "expandable_segments:True"
_VARIABLE = "PYTORCH_ALLOC_CONF"
_VARIABLES = (_VARIABLE, "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")  # older names that torch still reads
_NEARLY_FULL = 0.9
_LARGE_HOLES = 0.15  # of the card


class ExpandableSegments(Change):
    def environment(self) -> dict[str, str]:
        """The allocator reads it once, when torch is imported. A choice of the user's own stays."""
        return {} if any(name in os.environ for name in _VARIABLES) else {_VARIABLE: _SETTING}

    def flags(self) -> None:
        if not torch.cuda.is_available():
            raise NotApplicable("there is no GPU")
        if not any(_SETTING.lower() in os.environ.get(name, "").lower() for name in _VARIABLES):
            raise NotApplicable(
                f"{_VARIABLE} or PYTORCH_CUDA_ALLOC_CONF is set to something else: add {_SETTING} to it"
            )
        self.applied(f"{_VARIABLE}={_SETTING}")


def find(m: Measurement) -> Found | None:
    return _found(m, None)


def find_probed(m: Measurement, probed: Probed) -> Found | None:
    return _found(m, probed)


def _found(m: Measurement, probed: Probed | None) -> Found | None:
    device = m.memory.device
    if not on_gpu(m) or device is None or "expandable_segments:true" in m.structure.allocator.lower():
        return None
    holes = device.reserved_peak_gib - device.allocated_peak_gib
    is_full_of_holes = device.reserved_peak_gib > _NEARLY_FULL * device.total_gib and (
        holes > _LARGE_HOLES * device.total_gib
    )
    grows = m.inputs_vary and allocates(m) and not autotuner_empties_the_cache(m)
    if not device.alloc_retries and not is_full_of_holes and not grows:
        return None
    saved = allocations_ms(m, probed)
    return Found(
        exposed_ms=saved,
        idle_ms=saved,
        likely=share_saved(saved, Shares(0.5, 0.0, 1.0)),
        evidence={
            "alloc_retries": device.alloc_retries,
            "driver_allocations": m.allocator.device_allocs if m.allocator is not None else None,
            "reserved_peak_gib": round(device.reserved_peak_gib, 2),
            "allocated_peak_gib": round(device.allocated_peak_gib, 2),
            "total_gib": round(device.total_gib, 2),
            "allocator": m.structure.allocator or None,
        },
        says=(
            f"{_happened(m, is_full_of_holes)}; {holes:.1f} GiB are reserved but not in use at the peak: "
            f"at most {saved:.1f} ms per step"
        ),
        why_not=f"{_VARIABLE} is set already ({m.structure.allocator})" if m.structure.allocator else None,
    )


def _happened(m: Measurement, is_full: bool) -> str:
    device, use = m.memory.device, m.allocator
    if device is not None and device.alloc_retries:
        return f"the allocator found no room {device.alloc_retries} times, freed its cache and waited for the GPU"
    if is_full or use is None:
        return "the card is nearly full"
    return (
        f"the allocator asked the driver for memory {(use.device_allocs or 0) / max(1, use.steps):.1f} times per step"
    )


PRACTICE = Practice(
    name="expandable_segments",
    title="allocator with expandable segments",
    family="memory",
    risk="exact",
    source="R16: track num_alloc_retries; fragmentation loses memory; hotfix expandable_segments.",
    why=(
        "The caching allocator takes memory from the GPU in segments of fixed size. When sizes vary, holes remain that "
        "no tensor fits into; with a full card it must give everything back, wait for the GPU and start again (a "
        "retry), or run out of memory although enough is free. Segments that can grow leave no such holes."
    ),
    by_hand=f"export {_VARIABLE}={_SETTING}   # before Python starts",
    find=find,
    find_probed=find_probed,
    for_new_shapes=True,
    change=ExpandableSegments,
    order=10,
)

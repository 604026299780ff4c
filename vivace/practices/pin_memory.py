"""Pinned memory and non-blocking copies: batches go to the GPU while it computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import on_gpu, phase_ms, step_ms
from vivace.practices.engine.step_model import Less, likely_saved
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.01
# 147 MiB in 2.79 ms on an H200 (measure_dlojz_resnet50_h200.json); older buses have a half or a quarter of it.
_PINNED_GIB_PER_S = 48.0, 12.0, 51.0  # usual, least, most


class PinMemory(Change):
    def loader(self, arguments: dict[str, Any]) -> None:
        if not torch.cuda.is_available():
            raise NotApplicable("there is no GPU to copy to")
        if arguments["pin_memory"]:
            raise NotApplicable("the loader already pins its batches")
        arguments["pin_memory"] = True
        self.applied("loaders pin their batches")


def find(m: Measurement) -> Found | None:
    pageable = [c for c in (m.profile.copies if m.profile else ()) if "HtoD (Pageable" in c.kind]
    loaders = [loader for loader in m.loaders if not loader.pin_memory]
    copies = phase_ms(m, "copy")
    if not on_gpu(m) or not pageable or not loaders or copies < _SMALLEST_SHARE * step_ms(m):
        return None
    size = sum(c.mib_per_step for c in pageable)
    where = loaders[0].where
    return Found(
        exposed_ms=copies,
        likely=likely_saved(m, *(Less(copies - left, copies - left, gap=0.5) for left in _left_ms(m, size, copies))),
        evidence={"copy_ms": round(copies, 3), "pageable_mib_per_step": round(size, 2), "pin_memory": False},
        says=f"{size:.1f} MiB per step are copied from pageable memory; the GPU waits {copies:.1f} ms for them",
        where=(where.file, where.line) if where else None,
    )


def _left_ms(m: Measurement, size_mib: float, now_ms: float) -> tuple[float, float, float]:
    """What copies from pinned memory take: usual, at most, at least."""
    return tuple(min(now_ms, size_mib / 1.024 / rate) for rate in _PINNED_GIB_PER_S)  # type: ignore[return-value]


PRACTICE = Practice(
    name="pin_memory",
    title="pinned host memory",
    family="loader",
    risk="exact",
    source="R1: pin_memory=True. DLO-JZ, DataLoader lab.",
    why=(
        "The GPU's copy engine reads page-locked memory directly. From pageable memory the driver first copies into a "
        "buffer of its own and the host waits. Pinned memory is also what makes non-blocking copies possible."
    ),
    by_hand="loader = DataLoader(dataset, …, pin_memory=True)",
    find=find,
    change=PinMemory,
    order=20,
)

"""Preallocation: run the longest batch first, so that the allocator has room for all that follow. By hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import on_gpu, retries_ms
from vivace.practices.engine.step_model import Shares, share_saved

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement


def find(m: Measurement) -> Found | None:
    device = m.memory.device
    shapes = m.input_shapes or 1
    if not on_gpu(m) or device is None or shapes < 2 or not device.alloc_retries:
        return None
    saved = retries_ms(m)
    return Found(
        exposed_ms=saved,
        likely=share_saved(saved, Shares(0.5, 0.0, 1.0)),
        evidence={
            "input_shapes": shapes,
            "alloc_retries": device.alloc_retries,
            "reserved_peak_gib": round(device.reserved_peak_gib, 2),
            "allocated_peak_gib": round(device.allocated_peak_gib, 2),
        },
        says=(
            f"inputs come in {shapes} shapes and the allocator had to start again {device.alloc_retries} times: "
            f"at most {saved:.1f} ms a step"
        ),
    )


PRACTICE = Practice(
    name="preallocate",
    title="preallocate memory with the longest batch",
    family="memory",
    risk="exact",
    source="R13: preallocate memory for variable lengths; one forward and backward on a batch of the maximum length.",
    why=(
        "A longer batch needs larger blocks than those in the allocator's cache. It takes new ones; when the card is "
        "full it gives all others back first, which waits for the GPU. When the longest batch comes first, every later "
        "one fits into its blocks. Only the script knows its longest batch, so this is done by hand; it also shows at "
        "once whether that batch fits."
    ),
    by_hand=(
        "longest = torch.ones(batch_size, max_length, dtype=torch.long, device=device)\n"
        "model(longest).sum().backward()   # before the first batch; no optimizer step\n"
        "optimizer.zero_grad(set_to_none=True)"
    ),
    find=find,
)

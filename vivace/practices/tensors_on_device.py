"""Tensors made on their device: `torch.rand(size, device="cuda")` instead of `torch.rand(size).cuda()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import copies_to_gpu, launch_idle_ms, on_gpu, phase_ms, step_ms
from vivace.practices.engine.step_model import Less, likely_saved

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.01


def find(m: Measurement) -> Found | None:
    made = sorted(m.structure.host_made, key=lambda spot: -(spot.mib or 0.0))
    if not on_gpu(m) or not made:
        return None
    size = sum(spot.mib or 0.0 for spot in made)
    all_copies = copies_to_gpu(m)
    copied = max(size, sum(copy.mib_per_step for copy in all_copies))
    # Copies in the loop show as a phase of their own; those inside a forward only in the profile.
    spent = max(phase_ms(m, "copy"), sum(copy.ms_per_step for copy in all_copies))
    copies, idle = spent * size / copied if copied else 0.0, 0.0
    made_ms = sum(spot.made_ms or 0.0 for spot in made)
    if made_ms > _SMALLEST_SHARE * step_ms(m):  # meanwhile the GPU runs dry, and the host is no longer ahead of it
        idle = launch_idle_ms(m)
    if copies + idle < _SMALLEST_SHARE * step_ms(m):
        return None
    worst = made[0]
    return Found(
        exposed_ms=copies + idle,
        idle_ms=idle,
        likely=likely_saved(
            m,
            Less(host_ms=made_ms + copies, device_ms=copies, gap=1.0),
            Less(host_ms=0.5 * made_ms, device_ms=0.5 * copies, gap=0.5),
            Less(host_ms=1.5 * (made_ms + copies), device_ms=copies, gap=1.0),
        ),
        evidence={
            "mib_per_step": round(size, 3),
            "copies_per_step": sum(spot.copies or 0 for spot in made),
            "copy_ms": round(spent, 3),
            "made_ms": round(made_ms, 3),
            "lines": "; ".join(f"{spot.file.rsplit('/', 1)[-1]}:{spot.line} `{spot.code}`" for spot in made[:3]),
        },
        says=f"{size:.1f} MiB per step are made on the host and then copied to the GPU, which could make them itself",
        where=(worst.file, worst.line),
    )


PRACTICE = Practice(
    name="tensors_on_device",
    title="tensors made on their device",
    family="structure",
    risk="algorithmic",
    source="R8: torch.rand(size, device='cuda'), not torch.rand(size).cuda().",
    why=(
        "A tensor made on the host and then copied costs host time, a copy, and a wait of the host. Made on the GPU it "
        "costs one small kernel. Constants (masks, positions) are best made once. Random numbers come from the GPU's "
        "generator then: other draws from the same distribution."
    ),
    by_hand='noise = torch.randn(size, device="cuda")   # instead of torch.randn(size).cuda()',
    find=find,
)

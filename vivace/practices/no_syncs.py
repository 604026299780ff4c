"""No host–device synchronisation in the loop: each one lets the GPU run dry."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vivace.practices.engine.practice import Found, Practice, Saved
from vivace.practices.engine.pricing import launch_idle_ms, on_gpu, step_ms
from vivace.practices.engine.step_model import Less, likely_saved

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement, Sync

_COPIES = re.compile(r"\.(to|cuda|copy_)\(")
_SMALLEST_SHARE = 0.02
# Of the host, per line that reads a value: the copy, the wake-up, and the operators that made the value for it.
# R11 in planted_defects.csv: 97 reads a step, 12.66 → 9.22 ms; mlp_small in price_gains.csv: 96 reads, 21.7 → 17.6.
_MS_PER_SYNC, _MS_PER_SYNC_AT_MOST = 0.04, 0.08


def find(m: Measurement) -> Found | None:
    waits = [s for s in m.syncs if s.per_step >= 0.5 and not _has_its_own_practice(s, m)]
    reads = [s for s in waits if not _is_copy_to_the_gpu(s)]
    syncs = reads or waits
    idle = launch_idle_ms(m)
    if not on_gpu(m) or not syncs or idle < _SMALLEST_SHARE * step_ms(m):
        return None
    worst = max(syncs, key=lambda s: s.per_step)
    lines = "; ".join(f"{s.file.rsplit('/', 1)[-1]}:{s.line} `{s.code}`" for s in syncs[:3])
    return Found(
        exposed_ms=idle,
        idle_ms=idle,
        likely=without_syncs(m, sum(s.per_step for s in syncs)),
        evidence={
            "syncs_per_step": round(sum(s.per_step for s in syncs), 2),
            "idle_ms": round(idle, 3),
            "lines": lines,
        },
        says=f"the host waits for the GPU {sum(s.per_step for s in syncs):.0f} times per step, then the GPU waits",
        where=(worst.file, worst.line),
        part_of=() if reads else ("tensors_on_device", "pin_memory", "non_blocking"),
        by_hand=(
            "losses.append(loss.detach())   # instead of loss.item() at every step\n"
            "if step % 50 == 0: print(torch.stack(losses).mean().item()); losses.clear()"
        ),
    )


def without_syncs(m: Measurement, syncs: float) -> Saved:
    """The gaps after them and their own time on the host; then launching or computing is the limit."""
    return likely_saved(
        m,
        Less(host_ms=_MS_PER_SYNC * syncs, gap=1.0),
        Less(host_ms=0.0, gap=0.5),
        Less(host_ms=_MS_PER_SYNC_AT_MOST * syncs, gap=1.0),
    )


def _has_its_own_practice(sync: Sync, m: Measurement) -> bool:
    """What torchmetrics reads, and the looks for NaN of anomaly detection."""
    looks_for_nan = "anomaly detection" in m.structure.debugging and ".backward(" in sync.code
    return looks_for_nan or (sync.via or "").startswith("torchmetrics/")


def _is_copy_to_the_gpu(sync: Sync) -> bool:
    """Copies to the GPU wait for it too, but have practices of their own."""
    return bool(_COPIES.search(sync.code)) and "cpu" not in sync.code


PRACTICE = Practice(
    name="no_syncs",
    title="no host–device syncs in the loop",
    family="structure",
    risk="exact",
    source="R11: print(cuda_tensor), .item(), .cpu(), .nonzero(), Python control flow on CUDA tensors.",
    why=(
        "The host runs ahead of the GPU and queues work for it. Reading a value from the GPU (`.item()`, `print`, "
        "`if tensor:`) makes the host wait until the queue is empty, and then the GPU waits until the host has "
        "queued again. Keep values on the GPU and read them every fifty steps."
    ),
    by_hand="total += loss.detach()   # a tensor; read it with .item() every fifty steps",
    find=find,
)

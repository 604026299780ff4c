"""Memory of the process: the GPU allocator's peaks, and the resident memory of the process and its workers."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch

from vivace.protocol.payload import SeenMemory

__all__ = ["allocator_counts", "allocator_use", "device_memory", "devices_in_use", "host_memory", "memory_now"]

_GIB = 2**30


def devices_in_use() -> list[int]:
    """The GPUs that this process holds tensors on (DataParallel uses several)."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return []
    return [i for i in range(torch.cuda.device_count()) if torch.cuda.memory_allocated(i) > 0]


def memory_now() -> SeenMemory:
    return SeenMemory(devices=[device_memory(i) for i in devices_in_use()], host=host_memory())


def device_memory(device: int) -> dict[str, Any]:
    """Peaks since the process began; nothing is reset, the script may print these figures itself."""
    stats = torch.cuda.memory_stats(device)
    return {
        "allocated_peak_gib": stats.get("allocated_bytes.all.peak", 0) / _GIB,
        "reserved_peak_gib": stats.get("reserved_bytes.all.peak", 0) / _GIB,
        "alloc_retries": stats.get("num_alloc_retries", 0),
        "out_of_memory_errors": stats.get("num_ooms", 0),
        "total_gib": torch.cuda.get_device_properties(device).total_memory / _GIB,
    }


_COUNTERS = ("num_device_alloc", "num_device_free", "num_alloc_retries", "segment.all.allocated")


def allocator_counts() -> dict[str, int]:
    """How often the allocator asked the driver for memory so far, over the GPUs in use. Does not wait for the GPU.

    Counters that this torch does not have are left out.
    """
    counts: dict[str, int] = {}
    for device in devices_in_use():
        stats = torch.cuda.memory_stats(device)
        for name in _COUNTERS:
            if name in stats:
                counts[name] = counts.get(name, 0) + int(stats[name])
    return counts


def allocator_use(before: dict[str, int] | None, after: dict[str, int] | None, steps: int) -> dict[str, Any] | None:
    """What the allocator did between two counts: calls of cudaMalloc and cudaFree, new segments, retries."""
    if not before or not after:
        return None
    made = {name: after[name] - before[name] for name in after if name in before}
    return {
        "steps": steps,
        "device_allocs": made.get("num_device_alloc", made.get("segment.all.allocated")),
        "device_frees": made.get("num_device_free"),
        "segments": made.get("segment.all.allocated"),
        "retries": made.get("num_alloc_retries"),
    }


def host_memory() -> dict[str, float | int]:
    """Resident memory of this process and of its children (loader workers), from /proc; empty elsewhere."""
    own = _status_kib("self")
    if not own:
        return {}
    children = [_status_kib(pid).get("VmRSS", 0) for pid in _children()]
    return {
        "rss_gib": own.get("VmRSS", 0) / 2**20,
        "rss_peak_gib": own.get("VmHWM", 0) / 2**20,
        "children_rss_gib": sum(children) / 2**20,
        "children": len(children),
    }


def _status_kib(pid: str) -> dict[str, int]:
    fields: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in ("VmRSS", "VmHWM"):
                fields[name] = int(rest.split()[0])
    return fields


def _children() -> list[str]:
    pids: list[str] = []
    with contextlib.suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                pids += (task / "children").read_text().split()
    return pids

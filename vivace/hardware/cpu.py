"""The processors of this machine: model, cores, and the instructions that make bf16 pay on the CPU.

Reads ``/proc/cpuinfo`` and the scheduler's affinity mask; called by ``hardware.machine``. ``parse_cpuinfo``
takes text, so that it can be tested with made-up processors.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

from vivace.hardware.cgroups import Limits
from vivace.records.machine import Cpu

__all__ = ["CpuInfo", "parse_cpuinfo", "read_cpu", "usable_cores"]

# x86 has a bf16 dot product in AVX-512 (Cooper Lake, Zen 4, …) and a tile product in AMX; ARM calls it bf16.
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"})


@dataclass(frozen=True)
class CpuInfo:
    """What ``/proc/cpuinfo`` says of the first processor."""

    model: str | None = None
    flags: frozenset[str] = frozenset()

    def has(self, *flags: str) -> bool | None:
        """Whether one of the flags is there; None when no flags could be read."""
        return bool(self.flags.intersection(flags)) if self.flags else None


def parse_cpuinfo(text: str) -> CpuInfo:
    """Model and flags from the text of ``/proc/cpuinfo`` (x86: ``flags``, ARM: ``Features``)."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            values.setdefault(key.strip().lower(), value.strip())
    flags = values.get("flags") or values.get("features") or ""
    model = values.get("model name") or values.get("cpu model") or values.get("hardware")
    return CpuInfo(" ".join(model.split()) if model else None, frozenset(flags.lower().split()))


def usable_cores(logical: int | None, affinity: int | None, quota: float | None) -> float:
    """The lowest limit that is known; 1 when none is.

    >>> usable_cores(logical=64, affinity=8, quota=2.5)
    2.5
    """
    return float(min((limit for limit in (logical, affinity, quota) if limit is not None), default=1))


def read_cpu(limits: Limits, missing: list[str]) -> Cpu:
    """The processors of this machine. What cannot be found is added to ``missing``."""
    info = _read_info(missing)
    logical = psutil.cpu_count(logical=True)
    physical = psutil.cpu_count(logical=False)
    if physical is None:
        missing.append("the number of physical cores: the operating system does not tell it")
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return Cpu(
        model=info.model,
        architecture=platform.machine(),
        physical_cores=physical,
        logical_cores=logical,
        affinity_cores=affinity,
        quota_cores=limits.cpu_cores,
        usable_cores=usable_cores(logical, affinity, limits.cpu_cores),
        has_avx2=info.has("avx2"),
        has_avx512=info.has("avx512f"),
        has_amx=info.has("amx_tile"),
        has_bf16=info.has(*BF16_FLAGS),
    )


def _read_info(missing: list[str]) -> CpuInfo:
    try:
        info = parse_cpuinfo(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        info = CpuInfo()
    if not info.flags:
        missing.append("the abilities of the CPU (AVX, AMX, bf16): /proc/cpuinfo does not list them")
    if info.model is None:
        info = CpuInfo(platform.processor() or None, info.flags)
    if info.model is None:
        missing.append("the model of the CPU: neither /proc/cpuinfo nor the platform names it")
    return info

"""The energy of a trial's GPUs, by NVML's counters; None where there are none. Nothing of torch is needed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pynvml

from vivace.hardware.visible import visible_indices

__all__ = ["EnergyMeter", "counters"]


@dataclass(frozen=True)
class EnergyMeter:
    start_mj: tuple[int, ...] | None

    @classmethod
    def of(cls, gpus: int) -> EnergyMeter:
        """From now on, of the GPUs that this process sees; with ``gpus=0`` nothing is asked."""
        return cls(counters() if gpus else None)

    def joules(self) -> float | None:
        end = counters() if self.start_mj is not None else None
        if end is None or self.start_mj is None or len(end) != len(self.start_mj):
            return None
        return (sum(end) - sum(self.start_mj)) / 1e3


def counters(nvml: Any = pynvml) -> tuple[int, ...] | None:
    """Millijoules since the driver was loaded, one for each visible GPU; None if any of them has no counter."""
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
        uuids = [str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        seen = visible_indices(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
        return tuple(nvml.nvmlDeviceGetTotalEnergyConsumption(handles[n]) for n in seen) or None
    except nvml.NVMLError:
        return None

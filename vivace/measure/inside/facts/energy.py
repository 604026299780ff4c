"""Energy of the GPUs in use, from NVML's counter, found by UUID (never by index: CUDA_VISIBLE_DEVICES renumbers).

The counter is read at the two ends of a window; it is refreshed every 20 to 100 ms, so a window should last seconds.
Power is sampled a few times a second by the attendant, only for the peak. Where the counter is missing (before
Volta) the samples are integrated, and the record says so. Without NVML nothing is measured, and that is said too.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from vivace.protocol.payload import SeenEnergy

__all__ = ["EnergyMeter"]


class EnergyMeter:
    def __init__(self, uuids: list[str]) -> None:
        self.uuids = uuids
        self.why_not = ""
        self.handles: list[Any] = []
        self._nvml: Any = None
        self._started: tuple[float, list[int] | None] | None = None
        self._samples: list[tuple[float, float]] = []  # (seconds, watts over all our GPUs)
        self.result: SeenEnergy | None = None
        self._open()

    def _open(self) -> None:
        if not self.uuids:
            self.why_not = "there is no GPU here, and CPUs are not measured"
            return
        try:
            import pynvml
        except ImportError:
            self.why_not = "nvidia-ml-py (pynvml) cannot be imported"
            return
        try:
            pynvml.nvmlInit()
            self.handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in self.uuids]
            self._nvml = pynvml
        except pynvml.NVMLError as error:
            self.handles, self.why_not = [], f"NVML: {error}"

    def _counters_mj(self) -> list[int] | None:
        try:
            return [self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in self.handles]
        except self._nvml.NVMLError:
            return None

    def total_joules(self) -> float | None:
        """What the counters of all our GPUs show; None where there are none."""
        counters = self._counters_mj() if self.handles else None
        return sum(counters) / 1e3 if counters is not None else None

    def sample(self) -> None:
        """One reading of the power, by the attendant's thread, while a window is open."""
        if self._started is None or not self.handles:
            return
        with contextlib.suppress(self._nvml.NVMLError):
            watts = sum(self._nvml.nvmlDeviceGetPowerUsage(handle) for handle in self.handles) / 1e3
            self._samples.append((time.perf_counter(), watts))

    def start(self) -> None:
        if self.handles:
            self._samples = []
            self._started = (time.perf_counter(), self._counters_mj())

    def seconds(self) -> float:
        return time.perf_counter() - self._started[0] if self._started else 0.0

    def stop(self, steps: int) -> None:
        """Close the window over ``steps`` steps and keep the result."""
        if self._started is None or steps == 0:
            return
        began, before = self._started
        after, ended = self._counters_mj(), time.perf_counter()
        self._started = None
        samples = list(self._samples)
        if before is not None and after is not None:
            joules, method = (sum(after) - sum(before)) / 1e3, "NVML energy counter"
        elif samples:
            joules, method = _integrate(samples, began, ended), "integrated NVML power samples"
        else:
            self.why_not = "NVML gives neither energy nor power on this GPU"
            return
        self.result = SeenEnergy(
            joules=joules,
            window_s=ended - began,
            steps=steps,
            average_w=joules / (ended - began),
            peak_w=max((watts for _, watts in samples), default=None),
            method=method,
        )


def _integrate(samples: list[tuple[float, float]], began: float, ended: float) -> float:
    """Mean of the samples over the window: they are evenly spaced."""
    return sum(watts for _, watts in samples) / len(samples) * (ended - began)

"""Figures that several practices price themselves with, read from a ``Measurement``. Pure; used by ``find`` only.

Prices are upper bounds: what could be saved if the practice removed all the time that it can act on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

__all__ = [
    "arithmetic_share", "busy_ms", "capability", "compute_ms", "has_convolutions", "idle_ms", "launch_idle_ms",
    "on_gpu", "peak", "phase_ms", "role_ms", "step_ms",
]  # fmt: skip

PRODUCTS = ("convolution", "matmul", "attention")
MEMORY_BOUND = ("elementwise", "norm", "softmax", "pooling", "reduction", "other")


def step_ms(m: Measurement) -> float:
    return m.step_ms.mean if m.step_ms else 0.0


def phase_ms(m: Measurement, phase: str) -> float:
    return m.phases_ms[phase].mean if phase in m.phases_ms else 0.0


def compute_ms(m: Measurement) -> float:
    return phase_ms(m, "forward") + phase_ms(m, "backward")


def on_gpu(m: Measurement) -> bool:
    return m.clock == "gpu"


def capability(m: Measurement) -> tuple[int, int]:
    """CUDA compute capability of the (first) GPU in use; (0, 0) without one."""
    text = m.machine.gpus[0].compute_capability if m.machine.gpus and on_gpu(m) else None
    major, _, minor = (text or "0.0").partition(".")
    return int(major), int(minor)


def peak(m: Measurement, arithmetic: str) -> float | None:
    """Dense peak of the GPU in use, TFLOP/s, from the catalogue."""
    return m.machine.gpus[0].dense_peak_tflops.get(arithmetic) if m.machine.gpus and on_gpu(m) else None


def role_ms(m: Measurement, *roles: str) -> float:
    """Kernel time per step by what it is for, from the profiler window, scaled to the step as timed without it."""
    if m.profile is None:
        return 0.0
    total = sum(m.profile.roles_ms.values())
    # Kernels run as fast under the profiler; operators on a CPU do not, so their shares are taken.
    scale = 1.0 if on_gpu(m) else (compute_ms(m) / total if total else 0.0)
    return scale * sum(m.profile.roles_ms.get(role, 0.0) for role in roles)


def busy_ms(m: Measurement) -> float | None:
    """GPU time with a kernel or a copy running, per step; None where it was not profiled."""
    if m.profile is None or not on_gpu(m) or not m.profile.roles_ms:
        return None
    return sum(m.profile.roles_ms.values()) + sum(copy.ms_per_step for copy in m.profile.copies)


def idle_ms(m: Measurement) -> float:
    """GPU time with nothing running, per step."""
    busy = busy_ms(m)
    return max(0.0, step_ms(m) - busy) if busy is not None else 0.0


def launch_idle_ms(m: Measurement) -> float:
    """Idle time that neither the loader nor a copy explains: the host launches too slowly, or waits for the GPU."""
    return max(0.0, idle_ms(m) - phase_ms(m, "loader"))


def arithmetic_share(m: Measurement, *kinds: str) -> float:
    """The share of the counted FLOPs in these arithmetics (fp32, tf32, bf16, …)."""
    if m.flops is None or not m.flops.by_type:
        return 0.0
    return sum(m.flops.by_type.get(kind, 0) for kind in kinds) / sum(m.flops.by_type.values())


def has_convolutions(m: Measurement) -> bool:
    return m.structure.conv_weights_channels_last is not None

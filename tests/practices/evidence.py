"""Builds a ``Measurement`` by hand, as a well-tuned job on an H200 or on an 8-core CPU would give.

Tests of ``find`` change one thing in it.

>>> measurement(flops={"fp32": 10**12}).clock
'gpu'
"""

from __future__ import annotations

from typing import Any

from vivace.records.machine import Cpu, Gpu, Machine
from vivace.records.measurement import DeviceMemory, Energy, Flops, Measurement, Memory, Origin, Profile, Spread
from vivace.records.structure import Structure

__all__ = ["A100", "CPU", "H200", "V100", "measurement", "spread"]

H200 = Gpu(
    index=0,
    name="NVIDIA H200",
    memory_gib=139.8,
    sm_count=132,
    compute_capability="9.0",
    dense_peak_tflops={"fp32": 66.9, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4, "fp8": 1978.9},
    memory_bandwidth_gbytes_per_s=4800,
)
A100 = Gpu(
    index=0,
    name="NVIDIA A100-SXM4-80GB",
    memory_gib=79.2,
    sm_count=108,
    compute_capability="8.0",
    dense_peak_tflops={"fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312},
    memory_bandwidth_gbytes_per_s=2039,
)
V100 = Gpu(
    index=0,
    name="Tesla V100-SXM2-32GB",
    memory_gib=31.7,
    sm_count=80,
    compute_capability="7.0",
    dense_peak_tflops={"fp32": 15.7, "fp16": 125},
    memory_bandwidth_gbytes_per_s=900,
)
CPU = Cpu(
    architecture="x86_64",
    physical_cores=8,
    logical_cores=8,
    affinity_cores=8,
    usable_cores=8,
    has_avx2=True,
    has_avx512=False,
    has_amx=False,
    has_bf16=False,
)


def spread(value: float) -> Spread:
    return Spread(median=value, p10=value, p90=value, mean=value)


def measurement(
    on_gpu: bool = True,
    step_ms: float = 100.0,
    phases: dict[str, float] | None = None,
    roles: dict[str, float] | None = None,
    flops: dict[str, int] | None = None,
    recurrent: dict[str, int] | None = None,
    structure: dict[str, Any] | None = None,
    gpu: Gpu = H200,
    cpu: Cpu = CPU,
    memory: dict[str, Any] | None = None,
    flags: dict[str, Any] | None = None,
    profile: dict[str, Any] | None = None,
    **fields: Any,
) -> Measurement:
    """``phases`` and ``roles`` are milliseconds per step; ``flops`` is by arithmetic, and ``recurrent`` the part of it
    in such layers; ``memory`` is ``DeviceMemory``'s.

    ``memory``, ``flags``, ``profile`` and ``phases`` override single values of the defaults; ``roles`` and ``flops``
    replace them; any other field of ``Measurement`` goes by its name (``loaders=(…,)``, ``ranks=(…,)``).
    """
    usual_phases = {"loader": 0.0, "copy": 0.0, "forward": 0.3, "backward": 0.6, "optimizer": 0.02, "other": 0.08}
    phases = {**{name: share * step_ms for name, share in usual_phases.items()}, **(phases or {})}
    roles = roles if roles is not None else {"matmul": 0.8 * step_ms, "elementwise": 0.1 * step_ms}
    flops = flops if flops is not None else {"bf16" if on_gpu else "fp32": 10**12}
    usual_memory = {"allocated_peak_gib": 20.0, "reserved_peak_gib": 22.0, "total_gib": gpu.memory_gib}
    given: dict[str, Any] = {
        "status": "complete",
        "steps": 30,
        "warmup_steps": 5,
        "samples_per_s": 320 / step_ms * 1e3,
        "batch_size": 320,
        "micro_batches": 1.0,
        "step_ms": spread(step_ms),
        "phases_ms": {name: spread(value) for name, value in phases.items()},
        "clock": "gpu" if on_gpu else "host",
        "input_shapes": 1,
        "structure": Structure(**(structure or {})),
        "flops": Flops(
            model=sum(flops.values()), hardware=sum(flops.values()), by_type=flops, recurrent=recurrent or {}
        ),
        "memory": Memory(
            device=DeviceMemory(**{"alloc_retries": 0, **usual_memory, **(memory or {})}) if on_gpu else None
        ),
        "energy": Energy(measured=False, how="not measured: written by hand"),
        "profile": Profile(steps=3, roles_ms=roles, **(profile or {})),
        "origin": Origin(
            command=("python", "train.py"),
            folder="runs/by-hand",
            vivace="0",
            flags=flags or {},
            started_at="2025-01-01T00:00:00+00:00",
        ),
        "machine": Machine(
            hostname="here",
            os="Linux",
            python_version="3.12",
            cpu=cpu,
            memory_gib=64.0,
            gpus=(gpu,) if on_gpu else (),
        ),
    }
    return Measurement(**{**given, **fields})

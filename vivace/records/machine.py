"""The machine that something was measured on: processors, memory, GPUs and the versions that matter.

``vivace.hardware.machine.this_machine`` makes it; every record that holds a measurement carries one. What
could not be found out is None, and ``missing`` says why in a sentence.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from vivace.records.base import Part, Record

__all__ = ["Cpu", "Gpu", "Machine"]


class Cpu(Part):
    """The processors. Cores of the machine and cores that this process may use are two different things."""

    model: str | None = None
    architecture: str
    physical_cores: int | None = None
    logical_cores: int | None = None
    affinity_cores: int | None = None
    """Logical cores that the scheduler lets this process run on."""
    quota_cores: float | None = None
    """CPU time that the control group allows, in cores; None without a limit."""
    usable_cores: float
    """The lower of affinity and quota: what a loader's workers can count on."""
    has_avx2: bool | None = None
    has_avx512: bool | None = None
    has_amx: bool | None = None
    has_bf16: bool | None = None
    """Instructions for bf16 products; without them bf16 on the CPU is many times slower than fp32."""


class Gpu(Part):
    """One visible GPU. Peaks and bandwidths are the catalogue's (``catalogue_key``), the rest is read."""

    index: int
    """As in ``cuda:0``: after CUDA_VISIBLE_DEVICES."""
    name: str
    uuid: str | None = None
    memory_gib: float
    sm_count: int | None = None
    compute_capability: str | None = None
    power_limit_w: float | None = None
    nvlink_active_links: int | None = None
    nvlink_gbytes_per_s: float | None = None
    """One direction, all links together; 0 when no link is active."""
    pcie_generation: int | None = None
    pcie_width: int | None = None
    catalogue_key: str | None = None
    dense_peak_tflops: dict[str, float] = Field(default_factory=dict)
    memory_bandwidth_gbytes_per_s: float | None = None


class Machine(Record):
    """One machine, as this process sees it."""

    KIND: ClassVar[str] = "machine"

    hostname: str
    os: str
    python_version: str
    cpu: Cpu
    memory_gib: float
    memory_limit_gib: float | None = None
    """What the control group allows; None without a limit below ``memory_gib``."""
    gpus: tuple[Gpu, ...] = ()
    driver_version: str | None = None
    torch_version: str | None = None
    torch_build: str | None = None
    """``cpu``, ``cu130``, ``rocm6.4``, …"""
    cuda_version: str | None = None
    cudnn_version: str | None = None
    nccl_version: str | None = None
    missing: tuple[str, ...] = ()

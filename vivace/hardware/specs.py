"""What the catalogue says about a GPU, a cluster and a site: frozen dataclasses with units in the names.

Standard library only, because these are also read inside a user's own process. ``catalogue`` makes them;
``plan``, ``launch`` and ``measure`` read them. A value that no source gives is None (or an empty table),
never a guess.

Units: ``gbytes_per_s`` is 10⁹ bytes per second, ``gbits_per_s`` 10⁹ bits per second, ``gb`` 10⁹ bytes as
vendors and sites print it. TFLOP/s are dense unless a name says sparse (2:4). Links are for one direction: what a ring
collective sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = [
    "ClusterSpec",
    "GpuSpec",
    "QosSpec",
    "SiteSpec",
    "StorageSpec",
    "achievable_tflops",
    "as_table",
    "dtype_key",
    "peak_tflops",
]

# The formats that peaks are given for. fp64 and fp32 are without tensor cores, the others with them.
DTYPES = ("fp64", "fp64_tensor", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8", "int4", "int1")

DTYPE_NAMES: Mapping[str, str] = {
    "float64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float8": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}


@dataclass(frozen=True, kw_only=True)
class GpuSpec:
    """One GPU product. ``patterns`` are the names that NVML and torch report (``*`` allowed)."""

    key: str
    defined_in: str
    name: str
    sources: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    architecture: str | None = None
    compute_capability: str | None = None
    sm_count: int | None = None
    l2_mb: float | None = None
    memory_gb: float | None = None
    memory_type: str | None = None
    memory_bandwidth_gbytes_per_s: float | None = None
    dense_peak_tflops: Mapping[str, float] = field(default_factory=dict)
    sparse_peak_tflops: Mapping[str, float] = field(default_factory=dict)
    achievable_tflops: Mapping[str, float] = field(default_factory=dict)
    nvlink_generation: int | None = None
    nvlink_gbytes_per_s: float | None = None
    pcie_gbytes_per_s: float | None = None
    tdp_w: float | None = None
    idle_w: float | None = None
    value_sources: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class QosSpec:
    """A Slurm quality of service and its limits."""

    name: str
    default: bool = False
    max_hours: float | None = None
    max_gpus_per_job: int | None = None
    max_gpus_per_user: int | None = None
    max_gpus_per_project: int | None = None
    max_gpus_in_total: int | None = None
    max_jobs_per_user: int | None = None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StorageSpec:
    """A disk space of a site, known by the environment variable that points at it."""

    variable: str
    advice: str
    quota_gb: float | None = None
    quota_inodes: int | None = None
    quota_scope: str | None = None
    backed_up: bool | None = None
    writable: bool = True
    file_life_days: int | None = None
    read_gbytes_per_s: float | None = None
    write_gbytes_per_s: float | None = None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SiteSpec:
    """What all partitions of one computing centre share."""

    key: str
    defined_in: str
    name: str
    sources: tuple[str, ...]
    qos: tuple[QosSpec, ...] = ()
    storage: tuple[StorageSpec, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """A set of equal nodes: a partition of a supercomputer, or a family of servers.

    ``qos`` names entries of the site's table; ``site_spec`` is filled in by the catalogue.
    """

    key: str
    defined_in: str
    name: str
    sources: tuple[str, ...]
    gpu: str
    gpus_per_node: int
    nodes: int | None = None
    cpu_model: str | None = None
    cores_per_node: int | None = None
    cores_per_gpu: int | None = None
    memory_gb_per_node: float | None = None
    usable_memory_gb_per_node: float | None = None
    intra_node_link: str | None = None
    intra_node_gbytes_per_s_per_gpu: float | None = None
    pcie_gbytes_per_s: float | None = None
    inter_node_link: str | None = None
    inter_node_gbits_per_s_per_node: float | None = None
    inter_node_gbits_per_s_per_gpu: float | None = None
    measured_busbw_gbytes_per_s: Mapping[str, float] = field(default_factory=dict)
    node_max_power_w: float | None = None
    site: str | None = None
    scheduler: str | None = None
    partition: str | None = None
    needs_partition_flag: bool = True
    constraint: str | None = None
    account_suffix: str | None = None
    slurm_options: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    value_sources: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    site_spec: SiteSpec | None = None

    @property
    def gpus_in_total(self) -> int | None:
        return None if self.nodes is None else self.nodes * self.gpus_per_node

    @property
    def usable_memory_gb_per_core(self) -> float | None:
        """What one reserved core brings, where memory is handed out with cores (as on Jean Zay)."""
        if self.usable_memory_gb_per_node is None or self.cores_per_node is None:
            return None
        return self.usable_memory_gb_per_node / self.cores_per_node

    @property
    def usable_memory_gb_per_gpu(self) -> float | None:
        if self.usable_memory_gb_per_node is None:
            return None
        return self.usable_memory_gb_per_node / self.gpus_per_node

    @property
    def inter_node_gbytes_per_s_per_gpu(self) -> float | None:
        """``inter_node_gbits_per_s_per_gpu`` in the unit of ``intra_node_gbytes_per_s_per_gpu``."""
        if self.inter_node_gbits_per_s_per_gpu is None:
            return None
        return self.inter_node_gbits_per_s_per_gpu / 8

    @property
    def qos_specs(self) -> tuple[QosSpec, ...]:
        """The QoS of this cluster with their limits, in the catalogue's order."""
        if self.site_spec is None:
            return ()
        return tuple(qos for qos in self.site_spec.qos if qos.name in self.qos)

    @property
    def storage(self) -> tuple[StorageSpec, ...]:
        return () if self.site_spec is None else self.site_spec.storage


def dtype_key(dtype: object) -> str:
    """``torch.bfloat16``, ``"bfloat16"`` and ``"bf16"`` are all ``"bf16"``. TF32 is ``"tf32"``."""
    name = str(dtype).removeprefix("torch.").lower()
    return DTYPE_NAMES.get(name, name)


def peak_tflops(spec: GpuSpec, dtype: object) -> float | None:
    """The dense peak, or None when the GPU has no such unit or no source gives the figure."""
    return spec.dense_peak_tflops.get(dtype_key(dtype))


def achievable_tflops(spec: GpuSpec, dtype: object) -> float | None:
    """The best matrix product that others measured (MAMF): a realistic ceiling, below the peak."""
    return spec.achievable_tflops.get(dtype_key(dtype))


def as_table(spec: GpuSpec | ClusterSpec | SiteSpec) -> dict[str, Any]:
    """The spec as plain JSON data, unknown and empty values left out."""
    return _without_unknowns(asdict(spec))


def _without_unknowns(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_unknowns(item) for key, item in value.items() if item is not None and item not in ((), {})
        }
    if isinstance(value, list | tuple):
        return [_without_unknowns(item) for item in value]
    return value

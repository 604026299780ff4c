"""The machine as the time and memory models see it: one GPU's achievable rates, and the links between GPUs.

Facts (peaks, memory, links) come from the hardware catalogue, achievable fractions from ``constants.py``.
This file only holds the numbers; ``cluster.py`` fills it. Called by the time, memory and search modules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Gpu", "Links", "Machine"]


@dataclass(frozen=True)
class Gpu:
    """One accelerator: rates in TFLOP/s and GB/s (10^9), memory in GiB as the driver offers it."""

    name: str
    family: str
    sms: int
    peak_tflops: tuple[tuple[str, float], ...]
    """Dense peaks by compute type: fp32, tf32, fp16, bf16, fp8."""
    memory_gib: float
    hbm_gb_s: float
    tdp_w: float
    idle_w: float
    gemm_fraction: tuple[tuple[str, float], ...]
    """Share of the dense peak that a large matrix product reaches, by compute type."""
    hbm_fraction: float
    flash_fraction: float
    """Share of the dense peak that fused attention reaches forward (causal work counted once)."""
    flash_backward_fraction: float
    conv_fraction: tuple[tuple[str, float], ...]
    """Rate of convolutions over that of a matrix product of the same shape (Winograd can pass 1)."""
    context_gib: float
    """Memory that the CUDA context and libraries take before the first tensor."""

    def peak(self, dtype: str) -> float:
        """Dense peak in FLOP/s."""
        return dict(self.peak_tflops)[dtype] * 1e12

    def supports(self, dtype: str) -> bool:
        return dtype in dict(self.peak_tflops)

    def gemm_rate(self, dtype: str) -> float:
        """FLOP/s that a large, well-shaped matrix product reaches."""
        return self.peak(dtype) * dict(self.gemm_fraction)[dtype]

    def conv_share(self, dtype: str) -> float:
        return dict(self.conv_fraction).get(dtype, 0.8)

    @property
    def stream_rate(self) -> float:
        """Bytes/s that an elementwise kernel moves."""
        return self.hbm_gb_s * 1e9 * self.hbm_fraction


@dataclass(frozen=True)
class Links:
    """How GPUs reach each other. Bandwidths per GPU, one direction, in GB/s."""

    intra_gb_s: float
    """NVLink (or PCIe) specification."""
    intra_kind: str
    """``switch``, ``mesh`` (V100 cube mesh), ``pcie``."""
    inter_gb_s: float
    inter_fraction: float
    intra_fraction: float
    intra_latency_us: float
    intra_latency_us_per_gpu: float
    inter_latency_us: float
    inter_latency_us_per_hop: float


@dataclass(frozen=True)
class Machine:
    name: str
    gpu: Gpu
    gpus_per_node: int
    links: Links
    max_gpus: int = 0
    """0: unknown."""

    def with_bandwidth(self, factor: float) -> Machine:
        """The same machine with every link ``factor`` times as fast (for what-if questions and tests)."""
        links = replace(
            self.links,
            intra_gb_s=self.links.intra_gb_s * factor,
            inter_gb_s=self.links.inter_gb_s * factor,
        )
        return replace(self, links=links)

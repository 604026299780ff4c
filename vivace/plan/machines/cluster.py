"""From the hardware catalogue to the planner's ``Machine``: peaks, achievable shares, links.

Reads the catalogue (``vivace.hardware``) and the planner's constants. What the catalogue does not know is
taken from a relative of the same architecture, and ``assumptions`` says so. Called by the CLI, the search
and the table reader.
"""

from __future__ import annotations

from dataclasses import dataclass

from vivace.errors import UserError
from vivace.hardware.catalogue import find_cluster, load_catalogue, named_gpu
from vivace.hardware.specs import ClusterSpec, GpuSpec
from vivace.plan.facts.constants import constants, family_values
from vivace.plan.machines.machine import Gpu, Links, Machine

__all__ = ["Site", "gpu_from_spec", "machine_for", "machine_from_gpu"]

# A GPU of the same architecture whose figures stand in for those that a custom part does not publish.
RELATIVES = {
    "Ampere": "a100-sxm4-80gb",
    "Hopper": "h100-sxm5-80gb",
    "Volta": "v100-sxm2-32gb",
    "Blackwell": "b200-sxm",
}
GIB = 2.0**30


@dataclass(frozen=True)
class Site:
    """A machine with what was assumed to describe it."""

    machine: Machine
    cluster: ClusterSpec | None
    assumptions: tuple[str, ...] = ()


def _family(spec: GpuSpec) -> str:
    """The table of achievable shares: a product's own, or its architecture's."""
    known = constants("family")
    product = next((name for name in known if spec.key.startswith(name)), None)
    return product or (spec.architecture or "default").lower().split()[0]


def _relative(spec: GpuSpec) -> GpuSpec | None:
    key = RELATIVES.get((spec.architecture or "").split()[0] if spec.architecture else "")
    return load_catalogue().gpus.get(key) if key and key != spec.key else None


def gpu_from_spec(spec: GpuSpec) -> tuple[Gpu, list[str]]:
    """The planner's view of a catalogued GPU, with the list of what had to be assumed."""
    relative, notes = _relative(spec), []

    def value(name: str, fallback: float | None = None) -> float:
        own = getattr(spec, name)
        if own is not None:
            return float(own)
        other = getattr(relative, name) if relative else None
        if other is None and fallback is None:
            raise UserError(
                f"the catalogue does not know {name} of {spec.name}",
                hint=f"add a [gpu.{spec.key}] entry with {name} to a catalogue file",
            )
        source = f"that of {relative.name}" if relative and other is not None else "a general value"
        notes.append(f"{name} of {spec.name} is not published: {source} is assumed")
        return float(other if other is not None else fallback or 0.0)

    peaks = spec.dense_peak_tflops or (relative.dense_peak_tflops if relative else {})
    if not spec.dense_peak_tflops:
        notes.append(
            f"peaks of {spec.name} are not published: those of {relative.name if relative else 'nobody'} are assumed"
        )
    if not spec.dense_peak_tflops and relative and spec.tdp_w and relative.tdp_w:
        # A part with a lower power limit holds lower clocks under load: rate goes with about the root of the
        # power.
        limit = min(1.0, (spec.tdp_w / relative.tdp_w) ** 0.5)
        peaks = {name: rate * limit for name, rate in peaks.items()}
    family = _family(spec)
    shares = family_values(family)
    gemm = dict(shares["gemm"])
    usable = {key: rate for key, rate in peaks.items() if key in ("fp32", "tf32", "fp16", "bf16", "fp8")}
    usable = _with_tf32_fallback(usable)
    gpu = Gpu(
        name=spec.name,
        family=family,
        sms=int(value("sm_count", 100)),
        peak_tflops=tuple(sorted(usable.items())),
        memory_gib=_memory_gib(value("memory_gb")),
        hbm_gb_s=value("memory_bandwidth_gbytes_per_s"),
        tdp_w=value("tdp_w", 400),
        idle_w=value("idle_w", 50),
        gemm_fraction=tuple(sorted((key, gemm.get(key, 0.75)) for key in usable)),
        hbm_fraction=float(shares["hbm"]),
        flash_fraction=float(shares["flash"]),
        flash_backward_fraction=float(shares["flash_backward"]),
        conv_fraction=tuple(sorted(dict(shares["conv"]).items())),
        context_gib=float(shares["context_gib"]),
    )
    return gpu, notes


def _with_tf32_fallback(peaks: dict[str, float]) -> dict[str, float]:
    """A GPU without TF32 units computes "TF32" jobs in fp32; one without bf16 units has no bf16 entry."""
    if "tf32" not in peaks and "fp32" in peaks:
        peaks = {**peaks, "tf32": peaks["fp32"]}
    return peaks


def _memory_gib(memory_gb: float) -> float:
    """GiB that a job can use. An "80 GB" part offers 79.1 to 79.6 GiB: vendors print binary gigabytes,
    less reserve.
    """
    if memory_gb in (141.0, 180.0, 186.0, 192.0, 96.0):
        return memory_gb * 1e9 / GIB * (1.065 if memory_gb == 141.0 else 1.05)
    return memory_gb * 0.992


def _links(
    spec: GpuSpec, cluster: ClusterSpec | None, inter_gb_s: float | None, inter_kind: str
) -> tuple[Links, list[str]]:
    values = constants("links")
    notes: list[str] = []
    intra = (cluster.intra_node_gbytes_per_s_per_gpu if cluster else None) or spec.nvlink_gbytes_per_s
    kind = "mesh" if (spec.architecture or "") == "Volta" else "switch"
    if intra is None:
        intra, kind = spec.pcie_gbytes_per_s or 16.0, "pcie"
    if cluster and inter_gb_s is None:
        inter_gb_s = cluster.inter_node_gbytes_per_s_per_gpu
        inter_kind = inter_kind or (cluster.inter_node_link or "")
    if inter_gb_s is None:
        inter_gb_s = {"Hopper": 50.0, "Blackwell": 50.0, "Ampere": 25.0}.get(spec.architecture or "", 12.5)
        notes.append(f"the network is not described: {inter_gb_s * 8:.0f} Gb/s per GPU is assumed, as in DGX servers")
    fractions = values["inter_fraction"]
    lowered = inter_kind.lower()
    fraction = fractions["infiniband"]
    if "omni" in lowered or "opa" in lowered:
        fraction = fractions["omnipath"]
    elif "ethernet" in lowered or "tcp" in lowered or "efa" in lowered:
        fraction = fractions["ethernet"]
    share = 0.7 if kind == "pcie" else values["intra_fraction"]
    return (
        Links(
            intra_gb_s=float(intra),
            intra_kind=kind,
            inter_gb_s=float(inter_gb_s),
            inter_fraction=float(fraction),
            intra_fraction=float(share),
            intra_latency_us=values["intra_latency_us"],
            intra_latency_us_per_gpu=values["intra_latency_us_per_gpu"],
            inter_latency_us=values["inter_latency_us"],
            inter_latency_us_per_hop=values["inter_latency_us_per_hop"],
        ),
        notes,
    )


def machine_for(cluster_name: str) -> Site:
    """The machine of a catalogued cluster."""
    cluster = find_cluster(cluster_name)
    spec = named_gpu(cluster.gpu)
    gpu, notes = gpu_from_spec(spec)
    links, link_notes = _links(spec, cluster, None, "")
    total = cluster.gpus_in_total or 0
    machine = Machine(cluster.key, gpu, cluster.gpus_per_node, links, total)
    return Site(machine, cluster, tuple(notes + link_notes))


def machine_from_gpu(
    spec: GpuSpec, gpus_per_node: int = 8, inter_gb_s: float | None = None, inter_kind: str = ""
) -> Site:
    """A machine of which only the GPU (and perhaps the network) is known."""
    gpu, notes = gpu_from_spec(spec)
    links, link_notes = _links(spec, None, inter_gb_s, inter_kind)
    return Site(Machine(spec.key, gpu, gpus_per_node, links), None, tuple(notes + link_notes))

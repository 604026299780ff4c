"""Time of a collective: latency plus bytes over bandwidth, on the link that limits it.

Ring volumes: all-reduce 2(n-1)/n, all-gather and reduce-scatter (n-1)/n of the buffer. Inside a node the
bandwidth is the NVLink specification times a measured share; between nodes all GPUs of a node that belong
to the group bring their network cards. Pure arithmetic; called by ``step.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from vivace.plan.facts.constants import mesh_share
from vivace.plan.machines.machine import Machine

__all__ = ["Group", "all_gather_seconds", "all_reduce_seconds", "point_to_point_seconds"]


@dataclass(frozen=True)
class Group:
    """``size`` ranks that talk together, ``per_node`` of them on each node they use."""

    size: int
    per_node: int

    @property
    def nodes(self) -> int:
        return ceil(self.size / max(1, self.per_node))

    @classmethod
    def of(cls, machine: Machine, size: int, stride: int = 1) -> Group:
        """Ranks ``stride`` apart (stride = the product of the inner dimensions of the layout)."""
        per_node = max(1, min(size, machine.gpus_per_node // max(1, stride)))
        return cls(size, per_node)


def _bus_bytes_per_s(machine: Machine, group: Group) -> float:
    links = machine.links
    share = links.intra_fraction
    if links.intra_kind == "mesh" and group.nodes == 1:
        share = mesh_share(group.size, machine.gpus_per_node)
    intra = links.intra_gb_s * share * 1e9
    if group.nodes == 1:
        return intra
    inter = links.inter_gb_s * links.inter_fraction * group.per_node * 1e9
    return min(intra, inter) if group.per_node > 1 else inter


def _latency_s(machine: Machine, group: Group) -> float:
    links = machine.links
    inside = min(group.size, group.per_node)
    micros = links.intra_latency_us + links.intra_latency_us_per_gpu * inside if inside > 1 else 0.0
    if group.nodes > 1:
        micros += links.inter_latency_us + links.inter_latency_us_per_hop * log2(group.nodes)
    return micros * 1e-6


def all_reduce_seconds(machine: Machine, group: Group, size_bytes: float) -> float:
    n = group.size
    if n <= 1 or size_bytes <= 0:
        return 0.0
    return _latency_s(machine, group) + 2 * (n - 1) / n * size_bytes / _bus_bytes_per_s(machine, group)


def all_gather_seconds(machine: Machine, group: Group, size_bytes: float) -> float:
    """Also the time of a reduce-scatter. ``size_bytes`` is the whole (gathered) buffer."""
    n = group.size
    if n <= 1 or size_bytes <= 0:
        return 0.0
    return 0.6 * _latency_s(machine, group) + (n - 1) / n * size_bytes / _bus_bytes_per_s(machine, group)


def point_to_point_seconds(machine: Machine, size_bytes: float, across_nodes: bool) -> float:
    links = machine.links
    if across_nodes:
        rate = links.inter_gb_s * links.inter_fraction
        return (links.inter_latency_us * 1e-6) + size_bytes / (rate * 1e9)
    # One pair of GPUs: a switch gives the whole specification, a mesh one or two of its links.
    share = 0.3 if links.intra_kind == "mesh" else links.intra_fraction
    return 15e-6 + size_bytes / (links.intra_gb_s * share * 1e9)

"""The processes as a mesh, from a ``Layout``: who holds which weights, and who sees which tokens.

Ranks count tensor first, then context, data and pipeline: tensor ranks, which talk most, sit beside each other in a
node. Context ranks hold the same weights and see the same samples, so each of the two views below has four axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from vivace import distributed
from vivace.parallel.legal import check_world
from vivace.records.layout import Layout

__all__ = ["Meshes", "make_meshes", "start_processes", "summary"]


@dataclass(frozen=True)
class Meshes:
    """``weights``: pipeline x replicate x shard x tensor. ``batch``: pipeline x data x context x tensor."""

    weights: DeviceMesh
    batch: DeviceMesh
    device: torch.device

    @property
    def tensor(self) -> DeviceMesh:
        return self.weights["tensor"]

    @property
    def pipeline(self) -> DeviceMesh:
        return self.weights["pipeline"]

    @property
    def replicate(self) -> DeviceMesh:
        return self.weights["replicate"]

    @property
    def sharding(self) -> DeviceMesh:
        """What FSDP takes: one axis, or replicas of shards (hybrid sharding)."""
        return self.weights["replicate", "shard"] if self.replicate.size() > 1 else self.weights["shard"]

    @property
    def context(self) -> DeviceMesh:
        return self.batch["context"]

    @property
    def data_rank(self) -> int:
        return self.batch["data"].get_local_rank()


def start_processes(timeout_s: float = 600.0) -> distributed.World:
    """Meet the other ranks, whoever started them: Slurm, torchrun or nobody. NCCL with GPUs, gloo without."""
    distributed.init_process_group(timeout=timedelta(seconds=timeout_s))
    return distributed.world()


def make_meshes(layout: Layout) -> Meshes:
    check_world(layout, dist.get_world_size())
    device = distributed.world().device
    shard = layout.shard * layout.context if layout.zero else 1
    replicate = layout.data * layout.context // shard
    weights = _mesh(device, pipeline=layout.pipeline, replicate=replicate, shard=shard, tensor=layout.tensor)
    batch = _mesh(device, pipeline=layout.pipeline, data=layout.data, context=layout.context, tensor=layout.tensor)
    return Meshes(weights, batch, device)


def _mesh(device: torch.device, **sizes: int) -> DeviceMesh:
    return init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def summary(layout: Layout, world: distributed.World) -> str:
    """One line a fact, for the start of a training."""
    states = f"replicated {layout.replicas} times" if layout.replicas > 1 else "held once"
    if layout.zero:
        states += f", sharded over {layout.shards} (ZeRO {layout.zero})"
    facts = {
        "layout": f"{layout}: {_count(layout.gpus, 'process', 'es')} on {_count(world.num_nodes, 'node', 's')}",
        "started by": {"slurm": "Slurm", "torchrun": "torchrun", "single": "nobody: one process"}[world.launcher],
        "talk over": f"{dist.get_backend()}, {world.device.type}",
        "states": states,
    }
    return "\n".join(f"{name:12}{value}" for name, value in facts.items())


def _count(number: int, what: str, plural: str) -> str:
    return f"{number} {what}{plural if number > 1 else ''}"

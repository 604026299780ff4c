"""The processes as a mesh, from a ``Layout``: who holds which weights, and who sees which tokens.

Ranks count tensor first, then context, data and pipeline: tensor ranks, which talk most, sit beside each other in a
node. Context ranks hold the same weights and see the same samples, so each of the two views below has four axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from vivace import distributed
from vivace.parallel.legal import check_world
from vivace.records.layout import Layout

__all__ = ["Meshes", "make_meshes", "start_processes", "summary"]


@dataclass(frozen=True)
class Meshes:
    """``weights``: pipeline x data x shard x tensor. ``batch``: pipeline x samples x context x tensor."""

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
        return self.weights["data"]

    @property
    def sharding(self) -> DeviceMesh:
        """What FSDP takes: one axis, or replicas of shards (hybrid sharding)."""
        return self.weights["data", "shard"] if self.replicate.size() > 1 else self.weights["shard"]

    @property
    def context(self) -> DeviceMesh:
        return self.batch["context"]

    @property
    def data_rank(self) -> int:
        return self.batch["samples"].get_local_rank()


def start_processes(timeout_s: float = 600.0) -> distributed.World:
    """Meet the other ranks, whoever started them: Slurm, torchrun or nobody. NCCL with GPUs, gloo without."""
    distributed.init_process_group(timeout=timedelta(seconds=timeout_s))
    return distributed.world()


def make_meshes(layout: Layout) -> Meshes:
    check_world(layout, dist.get_world_size())
    device = distributed.world().device
    shard = layout.shard * layout.context if layout.zero else 1
    replicate = layout.data * layout.context // shard
    groups = _Groups()
    weights = groups.mesh(device, pipeline=layout.pipeline, data=replicate, shard=shard, tensor=layout.tensor)
    batch = groups.mesh(
        device, pipeline=layout.pipeline, samples=layout.data, context=layout.context, tensor=layout.tensor
    )
    return Meshes(weights, batch, device)


_Ranks = tuple[tuple[int, ...], ...]


class _Groups:
    """One process group for the same ranks, whichever mesh asks: each group of NCCL's costs memory on the GPU.

    Only the context has its own: its exchanges must not queue behind those of gradients over the same ranks.
    """

    def __init__(self) -> None:
        self._made: dict[_Ranks, dist.ProcessGroup] = {}

    def mesh(self, device: torch.device, **sizes: int) -> DeviceMesh:
        ranks = torch.arange(dist.get_world_size()).view(*sizes.values())
        groups = [
            self._group(name if size > 1 else "alone", ranks.movedim(axis, -1).reshape(-1, size))
            for axis, (name, size) in enumerate(sizes.items())
        ]
        return DeviceMesh.from_group(groups, device.type, ranks, mesh_dim_names=tuple(sizes))

    def _group(self, name: str, every: torch.Tensor) -> dist.ProcessGroup:
        ranks: _Ranks = tuple(map(tuple, every.tolist()))
        own = name == "context" and len(ranks[0]) > 1
        if ranks in self._made and not own:
            return self._made[ranks]
        group = _whole_world(name) if len(ranks) == 1 and not own else _part_of_world(name, ranks)
        return group if own else self._made.setdefault(ranks, group)


def _whole_world(name: str) -> dist.ProcessGroup:
    """The default group, under the axis's name: profilers then tell what its messages are for."""
    group = dist.group.WORLD
    assert group is not None
    group._set_group_desc(f"mesh_{name}")
    return group


def _part_of_world(name: str, ranks: _Ranks) -> dist.ProcessGroup:
    mine, _ = dist.new_subgroups_by_enumeration([list(part) for part in ranks], group_desc=f"mesh_{name}")
    assert mine is not None
    return mine


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

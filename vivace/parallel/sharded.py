"""Sharded states: FSDP2, block by block; the ZeRO stage says what stays sharded when.

ZeRO 3 frees a block's parameters after its forward pass and gathers them again; ZeRO 2 keeps them until its backward
pass is done; ZeRO 1 keeps whole gradients too while they accumulate, and exchanges them once a step (see ``running``).
On a mesh of two axes, shards are replicated (hybrid sharding).
"""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from vivace.parallel.blocks import blocks_of

__all__ = ["shard"]


def shard(
    stage: nn.Module, mesh: DeviceMesh, mixed: MixedPrecisionPolicy, zero: int, offload: bool, prefetch: int
) -> nn.Module:
    """Parameters become DTensors; whatever else holds them (a model without blocks) is one group."""
    # Pinned memory is for copies to an accelerator; torch refuses it where there is none.
    policy = CPUOffloadPolicy(pin_memory=mesh.device_type != "cpu") if offload else OffloadPolicy()
    groups = [child for child in _blocks(stage) if any(True for _ in child.parameters())]
    for block in groups:
        fully_shard(block, mesh=mesh, mp_policy=mixed, offload_policy=policy, reshard_after_forward=zero == 3)
    # The root's own parameters (embedding, output) are needed again at once: never freed after the forward pass.
    fully_shard(stage, mesh=mesh, mp_policy=mixed, offload_policy=policy, reshard_after_forward=False)
    if prefetch:
        _gather_ahead(groups, prefetch)
    return stage


def _blocks(stage: nn.Module) -> list[nn.Module]:
    """What is gathered together: a transformer's blocks, or the stages of an image model."""
    return list(blocks_of(stage).values()) or [child for child in stage.children() if isinstance(child, nn.Sequential)]


def _gather_ahead(blocks: list[nn.Module], count: int) -> None:
    """Ask for the next blocks while one computes, in both directions."""
    every: list[FSDPModule] = [block for block in blocks if isinstance(block, FSDPModule)]
    for index, block in enumerate(every):
        block.set_modules_to_forward_prefetch(every[index + 1 : index + 1 + count])
        block.set_modules_to_backward_prefetch(every[max(0, index - count) : index][::-1])

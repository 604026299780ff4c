"""Data parallelism with replicated states: DDP where it is alone, torch's ``replicate`` inside other dimensions.

DDP knows no DTensors and no split backward, so beside tensor and pipeline parallelism gradients are averaged by
``replicate``, which is FSDP2's machinery without the sharding.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.nn.parallel import DistributedDataParallel

from vivace.parallel.blocks import blocks_of

__all__ = ["replicate_alone", "replicate_beside"]


def replicate_alone(model: nn.Module, mesh: DeviceMesh, find_unused: bool, accumulates: bool) -> nn.Module:
    """DDP. ``find_unused`` walks the graph every step: only for models whose steps leave parameters out.

    Otherwise the graph is the same every step, and DDP is told so, unless gradients accumulate: its static graph counts
    one backward pass per step.
    """
    device = next(model.parameters()).device
    # Every rank's batch norms are its own, or synchronised. torch 2.13 has a new name for this.
    new_name = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    no_buffers: dict[str, Any] = {"forward_sync_buffers" if new_name else "broadcast_buffers": False}
    return DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        process_group=mesh.get_group(),
        gradient_as_bucket_view=True,  # gradients live in the buckets: no copy, and their memory once
        find_unused_parameters=find_unused,
        static_graph=not find_unused and not accumulates,
        **no_buffers,
    )


def replicate_beside(stage: nn.Module, mesh: DeviceMesh, mixed: MixedPrecisionPolicy) -> nn.Module:
    """Block by block, so that a block's gradients travel while the one before it computes its own."""
    for block in blocks_of(stage).values():
        replicate(block, mesh=mesh, mp_policy=mixed)
    replicate(stage, mesh=mesh, mp_policy=mixed)
    return stage


def mixed_precision(precision: str) -> MixedPrecisionPolicy:
    """bf16 matrices, sums over ranks in fp32; states keep the precision that they have."""
    if precision != "bf16":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)

"""The norm of all gradients, whoever holds them, and clipping by it.

Squares are summed where they are, then over the ranks that hold other parts: the sharded axes of each parameter's mesh,
and the pipeline. torch's own ``clip_grad_norm_`` sums per mesh and knows no pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

__all__ = ["clip_gradients", "gradient_norm", "settle_gradients"]


@torch.no_grad()
def gradient_norm(parameters: Iterable[nn.Parameter], pipeline: DeviceMesh, device: torch.device) -> Tensor:
    """The 2-norm over all parameters of the model, in float64; the same on every rank."""
    sums: dict[tuple[dist.ProcessGroup, ...], Tensor] = {}
    for parameter in parameters:
        if parameter.grad is None:
            continue
        groups, local = _owners(parameter.grad)
        square = (
            torch.linalg.vector_norm(local, dtype=torch.promote_types(local.dtype, torch.float32)).double().square()
        )
        sums[groups] = sums.get(groups, torch.zeros((), dtype=torch.float64, device=device)) + square.to(device)
    total = torch.zeros((), dtype=torch.float64, device=device)
    for groups, part in sums.items():
        for group in groups:
            dist.all_reduce(part, group=group)
        total += part
    if pipeline.size() > 1:
        dist.all_reduce(total, group=pipeline.get_group())
    return total.sqrt()


@torch.no_grad()
def settle_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Every gradient is cut as its parameter is. Under sequence parallelism each tensor rank has its tokens' part of a
    norm's gradient; FSDP sums those that it manages.
    """
    for parameter in parameters:
        gradient = parameter.grad
        if not isinstance(parameter, DTensor) or not isinstance(gradient, DTensor):
            continue
        if gradient.placements != parameter.placements:
            parameter.grad = gradient.redistribute(placements=parameter.placements)


def _owners(gradient: Tensor) -> tuple[tuple[dist.ProcessGroup, ...], Tensor]:
    """The groups over which a gradient is cut, and this rank's part."""
    if not isinstance(gradient, DTensor):
        return (), gradient
    mesh = gradient.device_mesh
    cut = [axis for axis, placement in enumerate(gradient.placements) if not placement.is_replicate()]
    assert not any(gradient.placements[axis].is_partial() for axis in cut), "a gradient that is not summed yet"
    return tuple(mesh.get_group(axis) for axis in cut if mesh.size(axis) > 1), gradient.to_local()


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], norm: Tensor, most: float) -> None:
    """Scale all gradients so that their norm is ``most``, if it is more."""
    scale = (most / (norm + 1e-6)).clamp(max=1.0)
    for parameter in parameters:
        if parameter.grad is not None:
            local = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
            local.mul_(scale.to(device=local.device, dtype=local.dtype))

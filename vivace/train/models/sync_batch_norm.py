"""Batch norm over the batches of all ranks: torch's own on GPUs, and the same in plain torch on CPUs.

``nn.SyncBatchNorm`` refuses CPU tensors, so a distributed script could not be tried without GPUs. Called by
``examples/dlojz_ddp.py``; the process group must exist.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = ["CpuSyncBatchNorm2d", "synchronised"]


def synchronised(model: nn.Module, device: torch.device) -> nn.Module:
    """``model`` with every 2-d batch norm replaced; weights, statistics and their names stay."""
    if device.type != "cpu":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = CpuSyncBatchNorm2d
    return model


class _Sum(torch.autograd.Function):
    """Over the ranks. All of them use the sum, so its gradient is the sum of theirs."""

    @staticmethod
    def forward(_context: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_context: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total


def _summed(values: Tensor) -> Tensor:
    summed: Tensor = _Sum.apply(values)
    return summed


class CpuSyncBatchNorm2d(nn.BatchNorm2d):
    """The sums are exchanged, not the means: ranks may have batches of different sizes."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or dist.get_world_size() == 1:
            return super().forward(input)
        count = input.new_tensor([input.numel() / input.shape[1]])
        sums = _summed(torch.cat([input.sum(dim=(0, 2, 3)), count]))
        total, mean = sums[-1].detach(), sums[:-1] / sums[-1].detach()
        centred = input - mean[:, None, None]
        variance = _summed(centred.square().sum(dim=(0, 2, 3))) / total
        self._note(mean.detach(), variance.detach() * total / (total - 1))
        scaled = centred * torch.rsqrt(variance + self.eps)[:, None, None]
        return scaled * self.weight[:, None, None] + self.bias[:, None, None]

    @torch.no_grad()
    def _note(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)

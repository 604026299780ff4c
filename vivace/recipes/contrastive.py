"""Contrastive learning: of all views in a step, which one shows the same image (SimCLR).

Chen et al. 2020, "A Simple Framework for Contrastive Learning" (arXiv 2002.05709), equation 1. Two views of each image
become two embeddings; the similarities of one embedding to all others are the logits of a classification whose answer
is its twin. In training the others are those of all ranks, so the loss is that of the whole batch.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["paired", "with_projection"]


def with_projection(backbone: nn.Module, width: int, embedding: int) -> nn.Module:
    """The backbone's last layer, of ``width``, becomes the first of a projection of two layers."""
    parts = OrderedDict(backbone=backbone, relu=nn.ReLU(), projection=nn.Linear(width, embedding))
    return nn.Sequential(parts)


def paired(outputs: Tensor, temperature: float, all_ranks: bool) -> tuple[Tensor, Tensor]:
    """Logits and answers from embeddings: all first views, then all second views of the same images."""
    with torch.autocast(outputs.device.type, enabled=False):
        mine = F.normalize(outputs.float(), dim=-1)
        everyone, first = _of_all_ranks(mine) if all_ranks and dist.is_initialized() else (mine, 0)
        logits = mine @ everyone.T / temperature
    rows = torch.arange(len(mine), device=outputs.device)
    logits = logits.index_put((rows, rows + first), logits.new_tensor(-torch.inf))  # a view is no answer to itself
    return logits, first + (rows + len(mine) // 2) % len(mine)


def _of_all_ranks(mine: Tensor) -> tuple[Tensor, int]:
    """The embeddings of all ranks, each with equally many, and where this rank's begin."""
    everyone: Tensor = _Gathered.apply(mine)
    return everyone, dist.get_rank() * len(mine)


class _Gathered(torch.autograd.Function):
    """The gradient of a rank's embeddings is the sum of those that the losses of all ranks give them."""

    @staticmethod
    def forward(ctx: Any, mine: Tensor) -> Tensor:
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, mine.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total.chunk(dist.get_world_size())[dist.get_rank()]

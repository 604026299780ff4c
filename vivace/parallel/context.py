"""Context parallelism: every rank has a part of each sequence, and gathers the keys and values of all.

The sequence is cut into two parts per rank, one from its start and one from its end, so that causal attention costs all
ranks the same (as Llama 3 does it). torch's own ``context_parallel`` knows CUDA's kernels only; this runs anywhere.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right
from torch.utils._python_dispatch import _disable_current_modes

from vivace.parallel.blocks import blocks_of

__all__ = ["ContextAttention", "positions_of", "split_context"]


def positions_of(seq_len: int, rank: int, ranks: int) -> Tensor:
    """Which tokens of a sequence a rank has.

    >>> positions_of(8, 0, 2).tolist()
    [0, 1, 6, 7]
    """
    if ranks == 1:
        return torch.arange(seq_len)
    part = seq_len // (2 * ranks)
    first, last = rank * part, (2 * ranks - 1 - rank) * part
    return torch.cat((torch.arange(first, first + part), torch.arange(last, last + part)))


def split_context(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Replace the attention of every block."""
    for block in blocks_of(model).values():
        block.attention.core = ContextAttention(group)  # type: ignore[union-attr]


class ContextAttention(nn.Module):
    """Causal attention of this rank's two parts to everything before them."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        grouped = query.shape[1] != key.shape[1]
        both = _gathered(torch.stack((key, value)), self.group)  # ranks x (key, value) x batch x heads x tokens x size
        early, late = both.chunk(2, dim=4)
        keys, values = torch.cat((*early, *late.flip(0)), dim=3)  # in the order of the sequence
        part = query.shape[2] // 2
        attended = []
        for queries, place in zip(query.chunk(2, dim=2), (self.rank, 2 * self.ranks - 1 - self.rank), strict=True):
            end = (place + 1) * part
            attended.append(
                F.scaled_dot_product_attention(
                    queries,
                    keys[:, :, :end],
                    values[:, :, :end],
                    attn_mask=_seen(part, end),
                    enable_gqa=grouped,
                )
            )
        return torch.cat(attended, dim=2)


@functools.lru_cache(maxsize=64)
def _seen(queries: int, keys: int) -> Tensor:
    """The last ``queries`` of ``keys`` tokens see what is before them. Kernels for this need no mask in memory.

    Made outside of selective checkpointing, which cannot see a tensor subclass being born.
    """
    with _disable_current_modes():
        return causal_lower_right(queries, keys)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        context.group = group
        whole = part.new_empty((dist.get_world_size(group) * part.shape[0], *part.shape[1:]))
        _all_gather(whole, part.contiguous(), group=group)
        return whole

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Every rank used every part: its gradient is the sum of what all ranks have for it."""
        whole = gradients[0].contiguous()
        part = whole.new_empty((whole.shape[0] // dist.get_world_size(context.group), *whole.shape[1:]))
        _reduce_scatter(part, whole, group=context.group)
        return part, None


# torch 2.13 renamed both.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def _gathered(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Those of all ranks, along a new first axis."""
    whole: Tensor = _Gather.apply(part, group)
    return whole.unflatten(0, (-1, part.shape[0]))

"""Activation checkpointing: what a block keeps for its backward pass, and what it computes again.

``full`` keeps a block's input alone; ``selective`` keeps the results of matrix products, attention and communication
and repeats the rest; a memory budget lets the compiler choose.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from vivace.parallel.blocks import blocks_of
from vivace.records.layout import Recompute

__all__ = ["apply_recompute", "set_memory_budget"]

_KEPT_NAMES = (
    "aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu", "_c10d_functional::all_gather_into_tensor",
    "_c10d_functional::reduce_scatter_tensor", "_c10d_functional::all_reduce",
)  # fmt: skip


def apply_recompute(stage: nn.Module, how: Recompute) -> None:
    """Wrap every block of ``stage``; parameters keep their names."""
    if how == "none":
        return
    more: dict[str, Any] = {}
    if how == "selective":
        more["context_fn"] = partial(create_selective_checkpoint_contexts, _keep)
    blocks = blocks_of(stage)
    for name, block in list(blocks.items()):
        # Our models draw nothing at random: no state of a generator to keep.
        blocks[name] = checkpoint_wrapper(block, preserve_rng_state=False, **more)


def _keep(_context: Any, operator: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    name = getattr(operator, "_schema", None) and operator._schema.name
    return CheckpointPolicy.MUST_SAVE if name in _KEPT_NAMES else CheckpointPolicy.PREFER_RECOMPUTE


def set_memory_budget(share: float) -> None:
    """For what is compiled from now on in this process."""
    torch._functorch.config.activation_memory_budget = share

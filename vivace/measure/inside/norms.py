"""The norm of many tensors together, for every torch that has it or not."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["total_norm"]


def total_norm(tensors: Sequence[torch.Tensor], norm_type: float = 2.0) -> torch.Tensor:
    """As ``torch.nn.utils.get_total_norm``, which torch has since 2.6."""
    if hasattr(torch.nn.utils, "get_total_norm"):
        return torch.nn.utils.get_total_norm(tensors, norm_type=norm_type)
    norms = [torch.linalg.vector_norm(tensor, norm_type) for tensor in tensors]
    return torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device) for norm in norms]), norm_type)

"""An output layer that shares the embedding's weights, on any layout.

Within one stage both names are one parameter. A pipeline holds two copies, in its first and its last stage: they start
alike, and their gradients are summed every step, so they stay alike (as Megatron does it).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from vivace.parallel.pipeline import stages_of_rank
from vivace.records.layout import Layout

__all__ = ["COPY", "ORIGINAL", "TiedCopies", "tie"]

ORIGINAL, COPY = "embedding.weight", "output.weight"


def tie(model: nn.Module) -> None:
    """One parameter under both names; again after each technique that replaces parameters by its own."""
    embedding, output = getattr(model, "embedding", None), getattr(model, "output", None)
    if getattr(model, "tied", False) and embedding is not None and output is not None:
        output.weight = embedding.weight


class TiedCopies:
    """The two copies of a pipeline: what this rank holds of them, and with whom it sums gradients."""

    def __init__(self, stages: list[nn.Module], layout: Layout, pipeline: DeviceMesh) -> None:
        self._embedding, self.copy = (_weight(stages, name) for name in ("embedding", "output"))
        self._group = pipeline.get_group()
        rank, ranks = pipeline.get_local_rank(), range(layout.pipeline)
        first = next(one for one in ranks if 0 in stages_of_rank(layout, one))
        last = next(one for one in ranks if layout.stages - 1 in stages_of_rank(layout, one))
        other = last if rank == first else first
        self._peer = dist.get_global_rank(self._group, other) if rank in (first, last) and first != last else None

    @torch.no_grad()
    def sum_gradients(self) -> None:
        """After the backward pass, before the norm. Both sides add the same two numbers: not a bit differs."""
        mine = [_local(weight.grad) for weight in (self._embedding, self.copy) if weight is not None]
        if len(mine) == 2:  # both stages are this rank's
            total = mine[0] + mine[1]
            mine[0].copy_(total)
            mine[1].copy_(total)
        elif self._peer is not None:
            theirs, sent = torch.empty_like(mine[0]), mine[0].contiguous()
            both = [
                dist.P2POp(dist.isend, sent, self._peer, self._group),
                dist.P2POp(dist.irecv, theirs, self._peer, self._group),
            ]
            for work in dist.batch_isend_irecv(both):
                work.wait()
            mine[0].add_(theirs)


def _weight(stages: list[nn.Module], name: str) -> nn.Parameter | None:
    return next((module.weight for stage in stages if (module := getattr(stage, name)) is not None), None)


def _local(gradient: Tensor | None) -> Tensor:
    assert gradient is not None
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient

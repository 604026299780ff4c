"""One batch forward and backward on parallelised stages: in micro-batches, or through a pipeline.

Gradients are exchanged with the last micro-batch, except that ZeRO 2 and 3 shard each one's. The loss is this rank's
mean over its share of the batch; None on ranks without the last stage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.parallel import DistributedDataParallel

from vivace.parallel.engine import Engine
from vivace.parallel.mesh import Meshes
from vivace.parallel.pipeline import make_schedule, stages_of_rank
from vivace.records.layout import Layout

__all__ = ["Loss", "Runner", "make_runner"]

Loss = Callable[[Tensor, Tensor], Tensor]
Runner = Callable[[Tensor, Tensor], Tensor | None]


def make_runner(
    stages: list[nn.Module], layout: Layout, meshes: Meshes, engine: Engine, micro_batches: int, loss: Loss
) -> Runner:
    """A function of inputs and targets of this rank's share, which leaves gradients on the parameters."""
    context = _surrounding(stages, layout, meshes, engine)
    if layout.pipeline > 1:
        return _pipelined(stages, layout, meshes, micro_batches, loss, context)
    return _accumulating(stages[0], layout, micro_batches, loss, context)


def _surrounding(stages: list[nn.Module], layout: Layout, meshes: Meshes, engine: Engine) -> Callable[[], Any]:
    """Logits that are split over the vocabulary need a loss that knows; bf16 is autocast where FSDP does not do it."""
    autocast = engine.precision == "bf16" and not isinstance(stages[0], FSDPModule)

    @contextlib.contextmanager
    def around() -> Any:
        with contextlib.ExitStack() as stack:
            if autocast:
                stack.enter_context(torch.autocast(meshes.device.type, dtype=torch.bfloat16))
            if layout.tensor > 1:
                stack.enter_context(loss_parallel())
            yield

    return around


def _pipelined(
    stages: list[nn.Module],
    layout: Layout,
    meshes: Meshes,
    micro_batches: int,
    loss: Loss,
    around: Callable[[], Any],
) -> Runner:
    schedule = make_schedule(stages, layout, meshes.pipeline, meshes.device, micro_batches, loss)
    mine = stages_of_rank(layout, meshes.pipeline.get_local_rank())
    first, last = 0 in mine, layout.stages - 1 in mine

    def run(inputs: Tensor, targets: Tensor) -> Tensor | None:
        losses: list[Tensor] = []
        words: dict[str, Any] = {"target": targets, "losses": losses} if last else {}
        with around():
            schedule.step(*([inputs] if first else []), **words, return_outputs=False)
        return torch.stack([_plain(each) for each in losses]).mean() if last else None

    return run


def _accumulating(
    model: nn.Module, layout: Layout, micro_batches: int, loss: Loss, around: Callable[[], Any]
) -> Runner:
    def run(inputs: Tensor, targets: Tensor) -> Tensor | None:
        parts = list(zip(inputs.chunk(micro_batches), targets.chunk(micro_batches), strict=True))
        total = torch.zeros((), device=inputs.device, dtype=torch.float64)
        for index, (part, wanted) in enumerate(parts):
            with _exchanging(model, layout, index == len(parts) - 1), around():
                found = loss(model(part), wanted)
                (found / len(parts)).backward()
            total += _plain(found).double()
        return total / len(parts)

    return run


@contextlib.contextmanager
def _exchanging(model: nn.Module, layout: Layout, last: bool) -> Any:
    if isinstance(model, DistributedDataParallel) and not last:
        with model.no_sync():
            yield
        return
    if isinstance(model, FSDPModule):
        model.set_is_last_backward(last)
        model.set_requires_gradient_sync(last or layout.zero >= 2)
        # ZeRO 1 keeps the gathered parameters from one micro-batch to the next.
        model.set_reshard_after_backward(last or layout.zero >= 2)
    yield


def _plain(loss: Tensor) -> Tensor:
    """Without its graph; a loss over a split vocabulary is the same on all ranks."""
    loss = loss.detach()
    return loss.full_tensor() if hasattr(loss, "full_tensor") else loss

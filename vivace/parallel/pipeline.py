"""Pipeline parallelism: the model cut into stages, and torch's schedules that drive micro-batches through them.

A stage is the same model without the modules of the others; modules move to their stage as they are, so names and
whatever was done to them before stay.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from vivace.parallel.blocks import blocks_of
from vivace.records.layout import Layout

__all__ = ["blocks_of_stages", "cut", "make_schedule", "stages_of_rank"]

_SINGLE = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
_SEVERAL = {
    "interleaved": ScheduleInterleaved1F1B,
    "zb1p": ScheduleInterleavedZeroBubble,
    "zbv": ScheduleZBVZeroBubble,
}


def stages_of_rank(layout: Layout, rank: int) -> list[int]:
    """Which stages a rank of the pipeline has: every p-th; for ``zbv`` one on the way there and one on the way back.

    >>> stages_of_rank(Layout(pipeline=2, virtual_stages=2, schedule="zbv"), 0)
    [0, 3]
    """
    if layout.schedule == "zbv":
        return [rank, 2 * layout.pipeline - 1 - rank]
    return [rank + turn * layout.pipeline for turn in range(layout.virtual_stages)]


def blocks_of_stages(layers: int, stages: int) -> list[range]:
    """Equal shares; where they do not divide, embedding and output count as a block each (BLOOM: 70 + 2 over 12).

    >>> blocks_of_stages(6, 4)
    [range(0, 1), range(1, 3), range(3, 5), range(5, 6)]
    """
    outside = 0 if layers % stages == 0 else 1
    whole = layers + 2 * outside
    ends = [max(0, min(layers, round((stage + 1) * whole / stages) - outside)) for stage in range(stages)]
    starts = [0, *ends[:-1]]
    if any(start == end for start, end in zip(starts, ends, strict=True)):  # too few blocks to count anything else
        ends = [round((stage + 1) * layers / stages) for stage in range(stages)]
        starts = [0, *ends[:-1]]
    return [range(start, end) for start, end in zip(starts, ends, strict=True)]


def cut(model: nn.Module, layout: Layout, rank: int) -> list[nn.Module]:
    """This rank's stages of ``model``."""
    shares, last = blocks_of_stages(len(blocks_of(model)), layout.stages), layout.stages - 1
    return [_stage(model, shares[stage], stage == 0, stage == last) for stage in stages_of_rank(layout, rank)]


def _stage(model: nn.Module, share: range, first: bool, last: bool) -> nn.Module:
    stage = copy.copy(model)
    for name, value in vars(model).items():  # a shallow copy shares the dictionaries of modules and hooks
        if isinstance(value, dict):
            stage.__dict__[name] = value.copy()
    stage.blocks = nn.ModuleDict({str(index): blocks_of(model)[str(index)] for index in share})
    if not first:
        stage.embedding = stage.positions = None  # type: ignore[assignment]
    if not last:
        stage.norm = stage.output = None  # type: ignore[assignment]
    return stage


def make_schedule(
    stages: list[nn.Module],
    layout: Layout,
    mesh: DeviceMesh,
    device: torch.device,
    micro_batches: int,
    loss: Callable[[Tensor, Tensor], Tensor],
) -> Any:
    """torch's schedule over this rank's stages. ``loss`` is a mean, and gradients are the mean over micro-batches."""
    numbers = stages_of_rank(layout, mesh.get_local_rank())
    made = [
        PipelineStage(stage, number, layout.stages, device, group=mesh.get_group())
        for stage, number in zip(stages, numbers, strict=True)
    ]
    if layout.schedule in _SINGLE:
        return _SINGLE[layout.schedule](made[0], micro_batches, loss_fn=loss)
    return _SEVERAL[layout.schedule](made, micro_batches, loss_fn=loss)  # type: ignore[arg-type]

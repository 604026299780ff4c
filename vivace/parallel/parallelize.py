"""The recipe: a whole model on the meta device in, this rank's part of it out. The order of the lines is the order.

Each technique is one file beside this one; here is only what comes before what, and why.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from vivace.parallel.blocks import blocks_of
from vivace.parallel.context import split_context
from vivace.parallel.data import mixed_precision, replicate_alone, replicate_beside
from vivace.parallel.engine import Engine
from vivace.parallel.mesh import Meshes
from vivace.parallel.pipeline import cut
from vivace.parallel.recompute import apply_recompute, set_memory_budget
from vivace.parallel.sharded import shard
from vivace.parallel.tensor import split_tensors
from vivace.parallel.tied import tie
from vivace.records.layout import Layout

__all__ = ["parallelize"]


def parallelize(
    model: nn.Module,
    layout: Layout,
    meshes: Meshes,
    engine: Engine,
    accumulates: bool,
    fill: Callable[[nn.Module], None],
) -> list[nn.Module]:
    """This rank's stages (one, without a pipeline). ``fill`` gives a stage its memory and first values."""
    # Tensor parallelism goes by the names and types of layers: before anything wraps them.
    if layout.tensor > 1:
        split_tensors(model, meshes.tensor, layout.sequence_parallel)
    if layout.context > 1:
        split_context(model, meshes.context.get_group())

    if layout.pipeline == 1:
        tie(model)

    # The cut moves modules as they are; what follows looks at one stage alone.
    stages = [model] if layout.pipeline == 1 else cut(model, layout, meshes.pipeline.get_local_rank())

    for stage in stages:
        # Checkpointing inside compilation: the compiler sees what is recomputed, and fuses it.
        apply_recompute(stage, layout.recompute)
        if engine.compile:
            if engine.memory_budget is not None:
                set_memory_budget(engine.memory_budget)
            for block in blocks_of(stage).values():
                block.compile()

    # Last, around everything: gathering parameters and exchanging gradients are hooks on whole (compiled) blocks.
    return [_with_data_ranks(stage, layout, meshes, engine, accumulates, fill) for stage in stages]


def _with_data_ranks(
    stage: nn.Module,
    layout: Layout,
    meshes: Meshes,
    engine: Engine,
    accumulates: bool,
    fill: Callable[[nn.Module], None],
) -> nn.Module:
    mixed = mixed_precision(engine.precision)
    if layout.zero:
        stage = shard(stage, meshes.sharding, mixed, layout.zero, engine.offload, engine.prefetch)
        fill(stage)  # only now: a rank never holds more than its shards
        return stage
    if meshes.replicate.size() == 1:
        fill(stage)
        return stage
    if layout.tensor == layout.pipeline == 1:
        fill(stage)  # first: DDP compares the values of all ranks
        return replicate_alone(stage, meshes.replicate, engine.find_unused, accumulates)
    stage = replicate_beside(stage, meshes.replicate, mixed)
    fill(stage)
    return stage

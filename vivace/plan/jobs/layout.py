"""Whether a layout is legal for a job.

An illegal layout is refused with the reason and the nearest legal value. Pure; called by the CLI, the
search and the table reader.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vivace.errors import UserError
from vivace.plan.models.transformer import Transformer
from vivace.records.layout import Layout

__all__ = ["check_layout", "divisors", "nearest"]


def divisors(number: int) -> list[int]:
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]


def nearest(value: int, candidates: Iterable[int]) -> int:
    """The candidate closest to ``value`` (the larger one of two at the same distance)."""
    return min(candidates, key=lambda candidate: (abs(candidate - value), -candidate))


def _refuse_unless_positive(layout: Layout, gpus: int, global_batch: int) -> None:
    values = {
        "GPUs": gpus,
        "global batch": global_batch,
        "data parallel": layout.data,
        "tensor parallel": layout.tensor,
        "pipeline parallel": layout.pipeline,
        "context parallel": layout.context,
        "virtual stages": layout.virtual_stages,
        "micro batch": layout.micro_batch,
    }
    for name, value in values.items():
        if value < 1:
            raise UserError(f"{name} is {value}; it must be at least 1", hint="use 1 or more")


def _refuse_model(layout: Layout, model: Transformer) -> None:
    if model.hidden % model.heads and not model.head_dim_given:
        better = nearest(model.heads, divisors(model.hidden))
        raise UserError(
            f"{model.heads} heads do not divide the hidden size {model.hidden}", hint=f"use --heads {better}"
        )
    if model.heads % model.kv_heads:
        better = nearest(model.kv_heads, divisors(model.heads))
        raise UserError(
            f"{model.kv_heads} key-value heads do not divide {model.heads} heads",
            hint=f"use --kv-heads {better}",
        )
    if model.heads % layout.tensor:
        better = nearest(layout.tensor, divisors(model.heads))
        raise UserError(
            f"tensor parallel {layout.tensor} does not divide the {model.heads} attention heads",
            hint=f"use --tp {better}",
        )
    stages = layout.pipeline * layout.virtual_stages
    if stages > model.layers:
        better = nearest(layout.pipeline, divisors(model.layers))
        raise UserError(f"{stages} pipeline stages are more than the {model.layers} layers", hint=f"use --pp {better}")
    if model.seq_len % (2 * layout.context) and layout.context > 1:
        better = nearest(layout.context, [c for c in divisors(model.seq_len) if model.seq_len % (2 * c) == 0])
        raise UserError(
            f"context parallel {layout.context} needs sequences of a multiple of {2 * layout.context} tokens, "
            f"not {model.seq_len}",
            hint=f"use --cp {better}",
        )


def check_layout(layout: Layout, model: Transformer | None, gpus: int, gpus_per_node: int, global_batch: int) -> Layout:
    """The layout with its data-parallel size filled in, or a ``UserError`` with the nearest legal value."""
    _refuse_unless_positive(layout, gpus, global_batch)
    if model is not None:
        _refuse_model(layout, model)
    if gpus % layout.model_parallel:
        below = gpus - gpus % layout.model_parallel
        better = below or layout.model_parallel
        raise UserError(
            f"{gpus} GPUs are not a multiple of tensor x pipeline x context = {layout.model_parallel}",
            hint=f"use --gpus {better}",
        )
    if layout.tensor > gpus_per_node:
        legal = [t for t in divisors(gpus_per_node) if model is None or model.heads % t == 0]
        raise UserError(
            f"tensor parallel {layout.tensor} would cross nodes of {gpus_per_node} GPUs, over a link ten times slower",
            hint=f"use --tp {nearest(layout.tensor, legal)}",
        )
    filled = replace(layout, data=gpus // layout.model_parallel)
    return _check_batch(filled, global_batch)


def _check_batch(layout: Layout, global_batch: int) -> Layout:
    per_step = layout.data * layout.micro_batch
    if global_batch % per_step:
        better = max(per_step, round(global_batch / per_step) * per_step)
        raise UserError(
            f"global batch {global_batch} is not a multiple of data parallel x micro batch = {per_step}",
            hint=f"use --global-batch {better}",
        )
    if layout.virtual_stages > 1 and layout.micro_batches(global_batch) % layout.pipeline:
        better = layout.pipeline * per_step * max(1, round(global_batch / per_step / layout.pipeline))
        raise UserError(
            f"interleaving needs micro-batches ({layout.micro_batches(global_batch)}) in multiples of the "
            f"{layout.pipeline} stages",
            hint=f"use --global-batch {better}",
        )
    shard = layout.shard_size
    if shard and layout.data % shard:
        raise UserError(
            f"shard size {shard} does not divide data parallel {layout.data}",
            hint=f"use --shard-size {nearest(shard, divisors(layout.data))}",
        )
    return layout

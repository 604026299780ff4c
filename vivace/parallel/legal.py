"""Whether a layout can run: it fills the world, and divides the model and the batch. Without torch.

Each refusal names the reason and the nearest that works. Called by the command line before processes start, and by the
trainer in each process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from vivace.errors import UserError
from vivace.parallel.engine import Engine
from vivace.records.layout import Layout
from vivace.records.transformer import TransformerSizes

__all__ = ["check_batch", "check_data_parallel", "check_engine", "check_transformer", "check_world", "nearest_layouts"]


def check_world(layout: Layout, world: int) -> None:
    """Refuse a layout that does not have exactly ``world`` processes."""
    if layout.gpus == world:
        return
    near = " or ".join(str(each) for each in nearest_layouts(layout, world))
    raise UserError(
        f"the layout {layout} needs {layout.gpus} process{'es' * (layout.gpus > 1)}, and there "
        f"{'is' if world == 1 else 'are'} {world}",
        hint=f"--layout {near}" if world > 1 else f"--ranks {layout.gpus}, or leave --ranks out",
    )


def nearest_layouts(layout: Layout, world: int, count: int = 2) -> list[Layout]:
    """Those of ``world`` processes that change the fewest sizes, the data ranks first, and change them least.

    >>> [str(each) for each in nearest_layouts(Layout(data=3, tensor=2, sequence_parallel=True), 8)]
    ['dp4,tp2', 'dp2,tp4']
    """
    now = (layout.replicas, layout.shard, layout.tensor, layout.pipeline, layout.context)

    def distance(sizes: tuple[int, ...]) -> tuple[int, float, tuple[int, ...]]:
        changes = [abs(math.log(new / old)) for new, old in zip(sizes, now, strict=True)]
        new_kinds = sum(old == 1 and new > 1 for new, old in zip(sizes, now, strict=True))
        model_parallel = sum(change > 0 for change in changes[2:])
        return 2 * new_kinds + model_parallel, sum(changes), sizes

    best = sorted(_factors(world, 5), key=distance)[:count]
    return [_resized(layout, *sizes) for sizes in best]


def _factors(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (number,)
        return
    for first in (size for size in range(1, number + 1) if number % size == 0):
        for rest in _factors(number // first, parts - 1):
            yield (first, *rest)


def _resized(layout: Layout, replicas: int, shard: int, tensor: int, pipeline: int, context: int) -> Layout:
    zero = (layout.zero or 3) if shard > 1 else 0
    return replace(
        layout,
        data=replicas * shard,
        zero=zero,
        shard_size=shard if zero and replicas > 1 else 0,
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        sequence_parallel=layout.sequence_parallel if layout.tensor > 1 else tensor > 1,
    )


def check_batch(layout: Layout, global_batch: int) -> None:
    """Every data rank gets as many whole micro-batches: the mean over ranks is then the mean over samples."""
    if layout.shard_size and layout.data % layout.shard_size:
        raise UserError(f"{layout.data} data ranks cannot be dealt out to shards of {layout.shard_size}")
    per_round = layout.data * layout.micro_batch
    if global_batch % per_round:
        better = max(per_round, round(global_batch / per_round) * per_round)
        raise UserError(
            f"a global batch of {global_batch} is not a multiple of data ranks x micro-batch = {per_round}",
            hint=f"--set global_batch={better}",
        )
    count = layout.micro_batches(global_batch)
    if layout.pipeline > 1 and layout.schedule in ("1f1b", "zbv") and count < layout.stages:
        _refuse_micro_batches(layout, count, layout.stages, global_batch)
    if layout.pipeline > 1 and layout.schedule in ("interleaved", "zb1p") and count % layout.pipeline:
        _refuse_micro_batches(layout, count, layout.pipeline, global_batch)


def _refuse_micro_batches(layout: Layout, count: int, wanted: int, global_batch: int) -> None:
    rule = "in multiples of" if layout.schedule in ("interleaved", "zb1p") else "at least"
    better = layout.data * layout.micro_batch * wanted * max(1, round(count / wanted))
    raise UserError(
        f"the schedule {layout.schedule} needs micro-batches {rule} {wanted}, and a global batch of {global_batch} "
        f"makes {count}",
        hint=f"--set global_batch={better}, or a smaller mb in the layout",
    )


def check_transformer(layout: Layout, sizes: TransformerSizes, seq_len: int) -> None:
    """Refuse a transformer that our GPT is not, or that the layout does not divide."""
    _refuse_other_models(sizes)
    kv_heads = sizes.kv_heads or sizes.heads
    for what, size in (("attention heads", sizes.heads), ("key-value heads", kv_heads), ("ffn", _ffn(sizes))):
        if size % layout.tensor:
            raise UserError(
                f"tensor parallel {layout.tensor} does not divide the {size} {what}",
                hint=f"--layout with tp{_largest_divisor(size, layout.tensor)}",
            )
    if layout.virtual_stages > 1 and layout.schedule in ("1f1b", "gpipe"):
        raise UserError(f"the schedule {layout.schedule} has one stage per rank", hint="interleaved, or leave out v")
    if layout.schedule == "zbv" and layout.virtual_stages != 2:
        raise UserError("the schedule zbv has two stages per rank", hint="add v2")
    if layout.stages > sizes.layers:
        raise UserError(
            f"{layout.stages} pipeline stages are more than the {sizes.layers} layers",
            hint=f"at most {sizes.layers} stages",
        )
    _check_sequence(layout, seq_len)


def _ffn(sizes: TransformerSizes) -> int:
    return sizes.ffn or 4 * sizes.hidden


def _refuse_other_models(sizes: TransformerSizes) -> None:
    if sizes.hidden % sizes.heads or (sizes.heads % (sizes.kv_heads or sizes.heads)):
        raise UserError(
            f"{sizes.heads} heads and {sizes.kv_heads or sizes.heads} key-value heads do not divide the hidden size "
            f"{sizes.hidden}",
            hint=f"--set sizes.heads={_largest_divisor(sizes.hidden, sizes.heads)}",
        )
    if sizes.positions == "rotary" and sizes.hidden // sizes.heads % 2:
        raise UserError("rotary positions need heads of an even size", hint="--set sizes.positions=learned")
    lacks = {
        "ALiBi": sizes.positions == "alibi",
        "sliding windows": sizes.window > 0,
        "heads whose size is not hidden / heads": sizes.head_dim not in (0, sizes.hidden // sizes.heads),
        "attention to later tokens": not sizes.causal,
    }
    if found := next((what for what, asked in lacks.items() if asked), None):
        raise UserError(f"the trainer's GPT has no {found}", hint="vivace plans such models; another trainer runs them")


def _check_sequence(layout: Layout, seq_len: int) -> None:
    if layout.context > 1 and seq_len % (2 * layout.context):
        raise UserError(
            f"context parallel {layout.context} needs sequences in multiples of {2 * layout.context} tokens, "
            f"not {seq_len}",
            hint=f"--set data.seq_len={_multiple(seq_len, 2 * layout.context)}",
        )
    if layout.sequence_parallel and layout.tensor > 1 and seq_len // layout.context % layout.tensor:
        raise UserError(
            f"sequence parallelism cuts {seq_len // layout.context} tokens into {layout.tensor} unequal parts",
            hint=f"--set data.seq_len={_multiple(seq_len, layout.context * layout.tensor)}, or nosp in the layout",
        )


def _multiple(value: int, of: int) -> int:
    return max(of, round(value / of) * of)


def _largest_divisor(number: int, most: int) -> int:
    return next(size for size in range(min(number, most), 0, -1) if number % size == 0)


def check_data_parallel(layout: Layout, name: str) -> None:
    """Convolutional networks have no plan for the other dimensions."""
    other = {"tp": layout.tensor, "pp": layout.pipeline, "cp": layout.context}
    if found := next((word for word, size in other.items() if size > 1), None):
        raise UserError(
            f"{name} is an image model: it has no {found} plan, only data-parallel layouts (dp, fs)",
            hint=f"--layout dp{layout.gpus}, or fs{layout.gpus}",
        )


def check_engine(layout: Layout, engine: Engine) -> None:
    if engine.memory_budget is not None and not engine.compile:
        raise UserError("the compiler keeps the memory budget", hint="--set engine.compile=true")
    if engine.memory_budget is not None and layout.recompute != "none":
        raise UserError("a memory budget chooses what is recomputed", hint="leave recompute-… out of the layout")
    if engine.offload and not layout.zero:
        raise UserError("only sharded states can be kept in the CPU's memory", hint="fs… in the layout")
    if engine.find_unused and (layout.zero or layout.model_parallel > 1):
        raise UserError("find_unused is DDP's: for layouts of dp alone", hint="--set engine.find_unused=false")
    if engine.compile and layout.tensor > 1:
        raise UserError(  # seen with torch 2.13 on CPUs: a gradient comes out as a plain tensor, and the step fails
            "the backward of compiled blocks loses the DTensors of tensor parallelism",
            hint="--set engine.compile=false, or a layout without tp",
        )
    if engine.compile and layout.pipeline > 1 and layout.schedule in ("zb1p", "zbv"):
        raise UserError(
            "torch splits no compiled backward, which zero-bubble schedules need",
            hint="another schedule, or --set engine.compile=false",
        )
    if layout.zero == 3 and layout.pipeline > 1 and layout.schedule in ("zb1p", "zbv"):
        raise UserError(  # seen with torch 2.13: losses differ from the third decimal on
            "zero-bubble schedules compute the gradients of weights later, when full sharding has freed the weights",
            hint="add zero2 to the layout, or take another schedule",
        )
    if layout.zero and layout.shard == 1 and layout.context == 1 and layout.gpus > 1:
        raise UserError("fs1 shards nothing", hint="dp instead of fs")

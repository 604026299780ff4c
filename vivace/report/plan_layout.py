"""A layout in words: in full for the plan that was chosen, in a few letters for tables. Knows ``Layout``."""

from __future__ import annotations

from vivace.records.layout import Layout

__all__ = ["degrees", "layout_in_full", "layout_in_short"]


def degrees(layout: Layout) -> str:
    """What multiplies to the number of GPUs.

    >>> degrees(Layout(data=4, tensor=8, pipeline=13))
    'dp4 x tp8 x pp13'
    """
    every = (("dp", layout.data), ("tp", layout.tensor), ("pp", layout.pipeline), ("cp", layout.context))
    return " x ".join(f"{name}{value}" for name, value in every if value > 1 or name == "dp")


def layout_in_short(layout: Layout) -> str:
    """
    >>> layout_in_short(Layout(data=4, tensor=2, zero=1, micro_batch=2, recompute="full"))
    'dp4 x tp2, ZeRO 1, micro-batch 2, recompute full'
    """
    words = [degrees(layout)]
    if layout.virtual_stages > 1:
        words.append(f"{layout.virtual_stages} virtual stages")
    if layout.zero:
        words.append(f"ZeRO {layout.zero}" + (f" over {layout.shard_size} ranks" if layout.shard_size else ""))
    words.append(f"micro-batch {layout.micro_batch}")
    if layout.recompute != "none":
        words.append(f"recompute {layout.recompute}")
    return ", ".join(words)


def layout_in_full(layout: Layout, global_batch: int) -> str:
    """
    >>> layout_in_full(Layout(data=4, tensor=2, sequence_parallel=True), 32)
    'data 4, tensor 2, sequence parallel, micro-batch 1 x 8, recompute none'
    """
    shards = f" over {layout.shard_size} ranks" if layout.shard_size else ""
    words = [f"data {layout.data}" + (f" (ZeRO {layout.zero}{shards})" if layout.zero else "")]
    named = (("tensor", layout.tensor), ("pipeline", layout.pipeline), ("context", layout.context))
    words += [f"{name} {value}" for name, value in named if value > 1]
    if layout.virtual_stages > 1:
        words.append(f"{layout.virtual_stages} virtual stages")
    if layout.schedule not in ("1f1b", "interleaved"):
        words.append(f"schedule {layout.schedule}")
    if layout.sequence_parallel:
        words.append("sequence parallel")
    words.append(f"micro-batch {layout.micro_batch} x {layout.micro_batches(global_batch)}")
    words.append(f"recompute {layout.recompute}")
    return ", ".join(words)

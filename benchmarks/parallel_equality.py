"""Claim: every layout of up to eight processes trains what one process trains, within rounding.

    OMP_NUM_THREADS=1 python benchmarks/parallel_equality.py [--most 8] [--out FILE]

Gloo ranks on the CPU, a GPT with clipping at work, three steps of AdamW (in fp32 of SGD: Adam moves a weight by the
learning rate however small its gradient is, so it makes rounding large). Writes ``results/parallel_equality.csv``: the
largest relative difference of losses and gradient norms, and the largest absolute one of final weights.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from forked_ranks import RanksFailed, largest_difference, outcomes

from vivace.errors import UserError
from vivace.records.layout import Layout, parse_layout
from vivace.train.settings import TrainSettings, check, with_changes

RESULTS = Path(__file__).parent / "results" / "parallel_equality.csv"
HEADER = ("processes", "layout", "model", "precision", "loss", "gradient_norm", "weights", "limit", "equal")
TOGETHER = 4  # layouts per start
SMALL = (
    "data.seq_len=48", "sizes.hidden=48", "sizes.layers=8", "sizes.vocab=96", "sizes.ffn=96", "optim.lr=0.01",
    "optim.clip_norm=0.5", "steps=3", "global_batch=24",
)  # fmt: skip
MODELS = {
    "gpt-2": ("sizes.biases=true", "sizes.positions=learned", "sizes.heads=8", "sizes.tied=true"),
    "llama": ("sizes.gated=true", "sizes.heads=8", "sizes.kv_heads=4"),
    "llama, sgd": ("sizes.gated=true", "sizes.heads=8", "sizes.kv_heads=4", "optim.name=sgd"),
    "llama, 6 heads": ("sizes.gated=true", "sizes.heads=6", "sizes.kv_heads=6"),
    "resnet18": ("data.image_size=8", "engine.sync_batch_norm=true", "optim.name=sgd", "global_batch=8", "steps=2"),
}
LIMITS = {"fp64": 1e-10, "fp32": 1e-5}
VARIANTS = (
    "dp2,mb3", "dp2,mb3,recompute-full", "dp2,recompute-selective", "fs2,zero1,mb3", "fs2,zero2,mb3", "fs2,mb3",
    "fs2,recompute-full", "tp2,nosp", "tp2,recompute-selective", "tp2,recompute-full", "pp2,gpipe", "pp2,v2",
    "pp2,v4", "pp2,zb1p", "pp2,v2,zb1p", "pp2,v2,zbv", "pp2,recompute-full", "pp2,recompute-selective",
    "pp2,v2,zbv,recompute-full", "cp2,mb3", "cp2,recompute-full", "cp2,recompute-selective", "dp2,pp2,v2,zbv",
    "fs2,zero1,pp2,zb1p", "fs2,zero2,pp2,v2,zbv", "fs2,zero1,tp2,pp2", "dp2,tp2,nosp", "fs2,tp2,mb3,recompute-full",
    "dp2,fs2,zero1", "dp2,fs2,zero2,mb2", "tp2,pp2,v2,zbv", "cp2,pp2,v2", "cp2,tp2,nosp",
)  # fmt: skip


def layouts(world: int) -> Iterator[Layout]:
    """Every one of so many processes, with one micro-batch per rank, or as many as a pipeline needs."""
    for replicas, shard, tensor, pipeline, context in itertools.product(range(1, world + 1), repeat=5):
        if replicas * shard * tensor * pipeline * context != world:
            continue
        data = replicas * shard
        if 24 % data == 0:
            yield Layout(
                data=data,
                zero=3 if shard > 1 else 0,
                shard_size=shard if shard > 1 and replicas > 1 else 0,
                tensor=tensor,
                pipeline=pipeline,
                context=context,
                sequence_parallel=tensor > 1,
                micro_batch=usual_micro_batch(data, pipeline),
            )


def usual_micro_batch(data: int, stages: int) -> int:
    return 24 // data if stages == 1 else max(1, 24 // data // stages // 2)


def variant(text: str) -> Layout:
    layout = parse_layout(text)
    return layout if "mb" in text else replace(layout, micro_batch=usual_micro_batch(layout.data, layout.stages))


def base(model: str, precision: str) -> TrainSettings:
    start = TrainSettings(model="resnet18" if model == "resnet18" else "gpt")
    return with_changes(start, (*SMALL, *MODELS[model], f"engine.precision={precision}"))


def questions(most: int) -> Iterator[tuple[str, str, list[Layout]]]:
    """Model, precision and layouts of one number of processes."""
    for world in (world for world in (2, 4, 8) if world <= most):
        yield "llama", "fp64", list(layouts(world))
    for world in (world for world in (3, 6) if world <= most):
        yield "llama, 6 heads", "fp64", list(layouts(world))
    for world in (world for world in (2, 4) if world <= most):
        yield "gpt-2", "fp64", list(layouts(world))
        yield "llama, sgd", "fp32", list(layouts(world))
    variants = [variant(text) for text in VARIANTS]
    for world in sorted({layout.gpus for layout in variants}):
        if world <= most:
            yield "llama", "fp64", [layout for layout in variants if layout.gpus == world]
    for text in ("dp2", "fs2", "fs2,zero1", "dp4", "dp2,fs2"):
        layout = parse_layout(text)
        yield "resnet18", "fp64", [replace(layout, micro_batch=8 // layout.data)]


def rows(most: int) -> Iterator[tuple[object, ...]]:
    alone = {}
    for model, precision, every in questions(most):
        settings = base(model, precision)
        if (model, precision) not in alone:
            whole = Layout(micro_batch=settings.global_batch)
            alone[model, precision] = outcomes(1, [settings.model_copy(update={"layout": whole})])[0]
        for some in batched(every):
            yield from compared(model, precision, settings, some, alone[model, precision])


def compared(model, precision, settings, some, alone) -> Iterator[tuple[object, ...]]:  # type: ignore[no-untyped-def]
    limit, runs = LIMITS[precision], []
    for layout in some:
        asked = settings.model_copy(update={"layout": layout})
        try:
            check(asked, layout.gpus)
            runs.append(asked)
        except UserError as error:
            yield layout.gpus, layout, model, precision, "", "", "", limit, f"refused: {error.message}"
    if not runs:
        return
    try:
        found = outcomes(some[0].gpus, runs)
    except RanksFailed as error:
        for asked in runs:
            yield asked.layout.gpus, asked.layout, model, precision, "", "", "", limit, f"failed: {str(error)[-200:]!r}"
        return
    for asked, outcome in zip(runs, found, strict=True):
        differences = largest_difference(outcome, alone)
        equal = max(differences) < limit
        texts = (f"{value:.1e}" for value in differences)
        yield asked.layout.gpus, asked.layout, model, precision, *texts, limit, "yes" if equal else "NO"


def batched(every: list[Layout]) -> Iterable[list[Layout]]:
    return (every[start : start + TOGETHER] for start in range(0, len(every), TOGETHER))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=8, help="processes")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    with open(asked.out, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for row in rows(asked.most):
            writer.writerow(row)
            file.flush()
            print(*row, flush=True)


if __name__ == "__main__":
    main()

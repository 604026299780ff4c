"""Every option of the engine on every kind of layout: it trains what one process trains, within rounding.

    OMP_NUM_THREADS=1 python benchmarks/parallel_options.py [--only compile]

Two gloo ranks on the CPU, three steps. The reference is one process in the same precision, without the option. fp64
options are held to 1e-10, bf16 (where the order of sums differs by layout) to 0.1 %. ``kept_kib`` is what autograd
keeps between the forward and the backward pass of one process, where the option is about that. Writes
results/parallel_options.csv.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from forked_ranks import RanksFailed, largest_difference, on_ranks, outcomes

from vivace.errors import UserError
from vivace.records.layout import parse_layout
from vivace.train.settings import TrainSettings, check, with_changes

RESULTS = Path(__file__).parent / "results" / "parallel_options.csv"
SMALL = (
    "data.seq_len=16", "sizes.hidden=32", "sizes.vocab=64", "sizes.layers=4", "sizes.heads=4", "optim.lr=0.01",
    "optim.clip_norm=0.5", "steps=3", "global_batch=8", "optim.name=sgd",
)  # fmt: skip
LIMITS = {"fp64": 1e-10, "fp32": 1e-5, "bf16": 1e-3}
LAYOUTS = ("dp2,mb4", "fs2,mb4", "fs2,zero2,mb4", "tp2,mb8", "pp2,mb2", "cp2,mb8")
ROWS: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("bf16", "bf16", (), LAYOUTS),
    ("offload", "fp64", ("engine.offload=true",), ("fs2,mb4", "fs2,zero1,mb2", "fs2,zero2,mb4")),
    ("offload, bf16", "bf16", ("engine.offload=true",), ("fs2,mb4",)),
    ("find_unused", "fp64", ("engine.find_unused=true",), ("dp2,mb4", "dp2,mb2", "fs2,mb4")),
    ("prefetch 0", "fp64", ("engine.prefetch=0",), ("fs2,mb4",)),
    ("prefetch 3", "fp64", ("engine.prefetch=3",), ("fs2,mb4",)),
    ("compile", "fp32", ("engine.compile=true",), LAYOUTS),
    ("compile, recompute-full", "fp32", ("engine.compile=true",), ("dp2,mb4,recompute-full",)),
    ("compile, memory_budget 0.3", "fp32", ("engine.compile=true", "engine.memory_budget=0.3"), ("dp2,mb4", "fs2,mb4")),
    ("compile, bf16", "bf16", ("engine.compile=true",), ("fs2,mb4",)),
)
HEADER = ("option", "precision", "layout", "loss", "gradient_norm", "weights", "limit", "equal", "kept_kib", "said")


def settings_for(precision: str, layout: str, changes: tuple[str, ...]) -> TrainSettings:
    base = with_changes(TrainSettings(), (*SMALL, f"engine.precision={precision}", *changes))
    return base.model_copy(update={"layout": parse_layout(layout)})


def kept_kib(settings: TrainSettings) -> float:
    """What one process keeps for the backward pass of its first step."""

    def work() -> float:
        from vivace.parallel.mesh import start_processes
        from vivace.train.training import build

        start_processes()
        training = build(settings)
        seen: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            if not isinstance(tensor, torch.nn.Parameter):
                storage = tensor.untyped_storage()
                seen[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            training.take_step()
        return sum(seen.values()) / 1024

    return float(on_ranks(1, work)[0])


def one(option: str, precision: str, changes: tuple[str, ...], layout: str) -> dict[str, object]:
    found: dict[str, object] = {"option": option, "precision": precision, "layout": layout, "limit": LIMITS[precision]}
    settings = settings_for(precision, layout, changes)
    try:
        check(settings, settings.layout.gpus)
    except UserError as refused:
        return {**found, "equal": "refused", "said": refused.message}
    alone = outcomes(1, [settings_for(precision, "mb8", ())])[0]
    try:
        differences = largest_difference(outcomes(settings.layout.gpus, [settings])[0], alone)
    except RanksFailed as failed:
        return {**found, "equal": "no", "said": str(failed).strip().splitlines()[-1][:200]}
    figures = dict(zip(("loss", "gradient_norm", "weights"), (f"{value:.1e}" for value in differences), strict=True))
    equal = "yes" if differences[0] < LIMITS[precision] and differences[1] < LIMITS[precision] else "no"
    return {**found, **figures, "equal": equal}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows that begin so, as 'compile: tp2'; the others stay")
    only = parser.parse_args().only
    rows = []
    if only and RESULTS.exists():
        with RESULTS.open() as file:
            rows = [row for row in csv.DictReader(file) if not f"{row['option']}: {row['layout']}".startswith(only)]
    for option, precision, changes, layouts in ROWS:
        for layout in (each for each in layouts if f"{option}: {each}".startswith(only)):
            rows.append(one(option, precision, changes, layout))
            if "engine.compile=true" in changes and layout.startswith("dp2"):
                alone = layout.replace("dp2,mb4", "mb8")
                rows[-1]["kept_kib"] = f"{kept_kib(settings_for(precision, alone, changes)):.0f}"
            print(rows[-1], flush=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, HEADER, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

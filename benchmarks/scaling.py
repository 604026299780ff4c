"""Claim: the bytes that a layout puts on the wire are those that `vivace plan` counts, and what a step then takes.

    OMP_NUM_THREADS=1 python benchmarks/scaling.py [--most 8]        as root: it counts in a network of its own

Gloo ranks on the CPU in a network namespace, so that the loopback's counter shows this training alone. The plan's bytes
are its own seconds on a machine whose links carry a byte per microsecond and whose GPUs take no time. The first rows
are single exchanges of 4 MiB beside their ring volume: gloo's own way of doing them. Writes ``results/scaling.csv``.
Times are those of a few cores that all ranks share: they show that it runs, not how it scales.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from forked_ranks import on_ranks

from vivace.plan.facts.precision import PRECISIONS
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.machines.cluster import machine_for
from vivace.plan.models.transformer import Transformer
from vivace.plan.time.step import step_time
from vivace.records.layout import Layout, parse_layout
from vivace.train.settings import TrainSettings, check, with_changes
from vivace.train.training import build

RESULTS = Path(__file__).parent / "results" / "scaling.csv"
HEADER = (
    "processes", "layout", "dimension", "wire_mib_per_step", "planned_mib_per_step", "ratio", "step_ms",
    "step_ms_low", "step_ms_high",
)  # fmt: skip
INSIDE = "VIVACE_SCALING_INSIDE"
WARM_UP, MEASURED = 1, 4
BYTE_S = 1e-6
MIB = 2**20
BASE = with_changes(
    TrainSettings(),
    ("data.seq_len=128", "sizes.hidden=128", "sizes.layers=8", "sizes.heads=8", "sizes.vocab=512", "sizes.gated=true",
     "sizes.ffn=384", "global_batch=16", f"steps={WARM_UP + MEASURED}"),
)  # fmt: skip
LAYOUTS = (
    "dp1,mb16", "dp2,mb8", "fs2,mb8", "fs2,zero1,mb8", "fs2,zero1,mb4", "fs2,mb4", "tp2,mb16", "tp2,nosp,mb16",
    "pp2,mb4", "pp2,v2,mb4", "cp2,mb16", "dp4,mb4", "fs4,mb4", "dp2,fs2,mb4", "tp4,mb16", "pp4,mb2", "cp4,mb16",
    "dp2,tp2,mb8", "fs2,pp2,zero1,mb2", "dp8,mb2", "fs8,mb2", "tp8,mb16", "pp8,mb1", "dp2,tp2,pp2,mb2",
)  # fmt: skip


def planned_bytes(layout: Layout) -> float:
    """Of all ranks in one step: the plan's communication on a machine where it alone takes time."""
    site = machine_for("dgx-a100").machine
    links = replace(
        site.links, intra_gb_s=1e-9 / BYTE_S, intra_fraction=1.0, intra_kind="switch", intra_latency_us=0.0,
        intra_latency_us_per_gpu=0.0, inter_gb_s=1e-9 / BYTE_S, inter_fraction=1.0, inter_latency_us=0.0,
        inter_latency_us_per_hop=0.0,
    )  # fmt: skip
    fast = tuple((name, 1e12) for name, _ in site.gpu.peak_tflops)
    machine = replace(site, links=links, gpu=replace(site.gpu, peak_tflops=fast, hbm_gb_s=1e15))
    sizes = BASE.sizes
    model = Transformer(
        "scaling", sizes.layers, sizes.hidden, sizes.heads, sizes.kv_heads or sizes.heads, sizes.ffn, sizes.vocab,
        BASE.data.seq_len, gated=True, biases=False, tied=False, positions="rotary", dropout=False,
    )  # fmt: skip
    job = TransformerJob(model, machine, layout, BASE.global_batch, BASE.data.seq_len, PRECISIONS["fp32"])
    step = step_time(job)
    per_rank = step.tensor_links + step.context_links + step.data_links + step.shard_links
    boundaries = (layout.stages - 1) / layout.virtual_stages * layout.gpus / layout.pipeline
    return (per_rank * layout.gpus + step.pipeline_links * boundaries) / BYTE_S


def sent_bytes() -> int:
    """By the loopback of this namespace: what one rank sends another receives, so either counts everything once."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return int(next(line for line in lines if line.strip().startswith("lo:")).split(":")[1].split()[8])


def measured(layout: Layout) -> tuple[float, list[float]]:
    """Bytes on the wire per step, and the milliseconds of each step."""
    settings = BASE.model_copy(update={"layout": layout})
    check(settings, layout.gpus)

    def work() -> tuple[float, list[float]]:
        training = build(settings)
        for _ in range(WARM_UP):
            training.take_step()
        dist.barrier()
        before, times = sent_bytes(), []
        for _ in range(MEASURED):
            started = time.perf_counter()
            training.take_step()
            times.append(1000 * (time.perf_counter() - started))
        dist.barrier()
        return (sent_bytes() - before) / MEASURED, times

    found: tuple[float, list[float]] = on_ranks(layout.gpus, work)[0]
    return found


def single_exchanges(ranks: int) -> Iterator[tuple[object, ...]]:
    """One collective at a time, on buffers of 4 MiB, beside the volume of a ring."""
    whole = 4 * MIB

    def work() -> dict[str, float]:
        found = {}
        big, small = torch.zeros(whole // 4), torch.zeros(whole // 4 // ranks)
        calls = {
            "all_reduce": lambda: dist.all_reduce(big),
            "all_gather": lambda: dist.all_gather_single(big, small),
            "reduce_scatter": lambda: dist.reduce_scatter_single(small, big),
        }
        for name, call in calls.items():
            call()
            dist.barrier()
            before = sent_bytes()
            call()
            dist.barrier()
            found[name] = float(sent_bytes() - before)
        return found

    for name, wire in on_ranks(ranks, work)[0].items():
        ring = (2 if name == "all_reduce" else 1) * (ranks - 1) * whole
        yield ranks, name, "one exchange", f"{wire / MIB:.3f}", f"{ring / MIB:.3f}", f"{wire / ring:.2f}", "", "", ""


def rows(most: int) -> Iterator[tuple[object, ...]]:
    for ranks in (2, 4):
        yield from single_exchanges(ranks)
    for layout in map(parse_layout, LAYOUTS):
        if layout.gpus > most:
            continue
        wire, times = measured(layout)
        planned = planned_bytes(layout)
        low, middle, high = statistics.quantiles(times, n=4)
        ratio = f"{wire / planned:.2f}" if planned else ""
        dimension = "+".join(
            name
            for name, size in (
                ("data", layout.replicas), ("shard", layout.shard), ("tensor", layout.tensor),
                ("pipeline", layout.pipeline), ("context", layout.context),
            )
            if size > 1
        )  # fmt: skip
        mib = (f"{wire / MIB:.3f}", f"{planned / MIB:.3f}", ratio)
        yield layout.gpus, layout, dimension or "one process", *mib, f"{middle:.1f}", f"{low:.1f}", f"{high:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=8, help="processes")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if INSIDE not in os.environ:
        again = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv]
        more = {INSIDE: "1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        sys.exit(subprocess.call(["unshare", "--net", *again], env={**os.environ, **more}))
    with open(asked.out, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for row in rows(asked.most):
            writer.writerow(row)
            file.flush()
            print(*row, flush=True)


if __name__ == "__main__":
    main()

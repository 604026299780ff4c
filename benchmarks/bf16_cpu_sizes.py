"""What bf16 autocast brings on a CPU, by the size of the products: three linear layers of one width, whole steps.

    python benchmarks/bf16_cpu_sizes.py

``flop_per_product``: the FLOPs of one product; the backward pass has two for each of the forward pass. ``ratio``: fp32
time over bf16 time, each the fastest of many steps that alternate on one thread, so that other work on the machine does
not decide. The figures behind the price in ``vivace/practices/engine/cpu_products.py``. Appends to
results/bf16_cpu_sizes.csv.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rows import Table, hardware

HERE = Path(__file__).parent
FIELDS = ("width", "batch", "flop_per_product", "fp32_ms", "bf16_ms", "ratio", "hardware", "torch")
LAYERS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256, 512, 1024])
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "bf16_cpu_sizes.csv")
    args = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(args.output, FIELDS, hardware("cpu"))
    for width in args.widths:
        for batch in args.batches:
            fp32_ms, bf16_ms = fastest_ms([step(width, batch, False), step(width, batch, True)], args.steps)
            table.add(
                width=width,
                batch=batch,
                flop_per_product=2 * batch * width * width,
                fp32_ms=fp32_ms,
                bf16_ms=bf16_ms,
                ratio=fp32_ms / bf16_ms,
            )


def step(width: int, batch: int, bf16: bool) -> Callable[[], None]:
    torch.manual_seed(0)
    layers = [part for _ in range(LAYERS) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = torch.randn(batch, width), torch.randint(0, width, (batch,))

    def run() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else contextlib.nullcontext():
            output = model(inputs)
        torch.nn.functional.cross_entropy(output.float(), targets).backward()
        optimizer.step()

    return run


def fastest_ms(runs: list[Callable[[], None]], steps: int) -> list[float]:
    best = [float("inf")] * len(runs)
    for number in range(steps):
        for which, run in enumerate(runs):
            began = time.perf_counter()
            run()
            if number >= 3:  # the first ones allocate
                best[which] = min(best[which], 1e3 * (time.perf_counter() - began))
    return best


if __name__ == "__main__":
    main()

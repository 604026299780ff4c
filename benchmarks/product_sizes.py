"""What sizes that are no multiple of 16 bytes cost a product on tensor cores: one side off, or both.

    python benchmarks/product_sizes.py
    python benchmarks/product_sizes.py --quick --device cpu

A product of 8192 x 2048 x 2048 with outputs, inputs or both a little smaller, forward and both backward products, as
``nn.Linear`` runs them. ``share``: the rate beside that of the whole sizes, in the same run. The figures behind
``vivace/hardware/alignment.toml``. Appends to results/product_sizes.csv.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rows import Table, hardware

HERE = Path(__file__).parent
FIELDS = ("arithmetic", "rows", "outputs", "inputs", "ms_median", "ms_p10", "ms_p90", "share", "hardware", "torch")
OFF = (0, 1, 2, 4, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run?")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "product_sizes.csv")
    args = parser.parse_args()
    table = Table(args.output, FIELDS, hardware(args.device))
    torch.set_float32_matmul_precision("high")
    rows, width = (64, 64) if args.quick else (8192, 2048)
    for arithmetic, kind in (("bf16", torch.bfloat16), ("tf32", torch.float32)):
        whole_rate = None
        for outputs, inputs in [(width, width), *sizes(width)]:
            times = timed(product(rows, outputs, inputs, kind, args.device), args.device, 3 if args.quick else 30)
            rate = outputs * inputs / statistics.median(times)
            whole_rate = whole_rate or rate
            table.add(
                arithmetic=arithmetic, rows=rows, outputs=outputs, inputs=inputs, ms_median=statistics.median(times),
                ms_p10=statistics.quantiles(times, n=10)[0], ms_p90=statistics.quantiles(times, n=10)[-1],
                share=rate / whole_rate,
            )  # fmt: skip


def sizes(width: int) -> list[tuple[int, int]]:
    return [
        pair for off in OFF[1:] for pair in ((width - off, width), (width, width - off), (width - off, width - off))
    ]


def product(rows: int, outputs: int, inputs: int, kind: torch.dtype, device: str) -> Callable[[], None]:
    layer = torch.nn.Linear(inputs, outputs, bias=False, device=device, dtype=kind)
    x = torch.randn(rows, inputs, device=device, dtype=kind, requires_grad=True)
    gradient = torch.randn(rows, outputs, device=device, dtype=kind)

    def once() -> None:
        torch.autograd.grad(layer(x), (x, layer.weight), gradient)

    return once


def timed(work: Callable[[], None], device: str, times: int) -> list[float]:
    """Milliseconds of each, after three that do not count."""
    found = []
    for number in range(times + 3):
        if device == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            work()
            end.record()
            end.synchronize()
            took = begin.elapsed_time(end)
        else:
            began = time.perf_counter()
            work()
            took = 1e3 * (time.perf_counter() - began)
        if number >= 3:
            found.append(took)
    return found


if __name__ == "__main__":
    main()

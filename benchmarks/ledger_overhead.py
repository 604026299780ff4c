"""What sampling costs: steps with a sampler and without, in one process.

    python benchmarks/ledger_overhead.py

Short blocks of steps alternate, in random order within a pair, and the thread's processor time is compared: other jobs
hardly change it. The figure is the median ratio over pairs with its 95 % bootstrap interval. Two jobs: a network of 300
small modules, limited by launching, and a loop in Python. The timed steps of a measurement have no sampler: this is the
cost of the steps after them. Appends to results/ledger_overhead.csv.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from measure_overhead import Training, bootstrap
from rows import Table, hardware, say

from vivace.measure.inside.lines.sampler import LineSampler

HERE = Path(__file__).parent
FIELDS = (
    "job", "period_ms", "step_cpu_ms_without", "ratio_median", "ratio_low", "ratio_high", "samples_per_s", "look_us",
    "pairs", "load", "torch", "hardware",
)  # fmt: skip


def python_loop() -> None:
    total = 0
    for i in range(200_000):
        total += i * i


def quartile_ms(step: Callable[[], None], steps: int) -> float:
    """Of the thread's processor time, which other jobs hardly change; the lower quartile, because what disturbs a step
    only ever makes it longer."""
    times = []
    for _ in range(steps):
        began = time.thread_time()
        step()
        times.append((time.thread_time() - began) * 1e3)
    return statistics.quantiles(times, n=4)[0]


def compare(step: Callable[[], None], period_ns: int, pairs: int, steps: int) -> dict[str, float]:
    without, ratios, looks, seconds, own = [], [], 0, 0.0, 0
    for _ in range(pairs):
        times = {}
        for sampled in random.sample([False, True], 2):
            sampler = LineSampler(period_ns)
            if sampled:
                sampler.begin()
            times[sampled] = quartile_ms(step, steps)
            if sampled:
                sampler.finish()
                looks += len(sampler.samples)
                seconds += (sampler.ended_ns - sampler.began_ns) / 1e9
                own += sum(one.ended_ns - one.began_ns for one in sampler.samples)
        without.append(times[False])
        ratios.append(times[True] / times[False])
    low, high = bootstrap(ratios)
    return {
        "step_cpu_ms_without": statistics.median(without), "ratio_median": statistics.median(ratios), "ratio_low": low,
        "ratio_high": high, "samples_per_s": looks / seconds, "look_us": own / 1e3 / max(1, looks),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--block-steps", type=int, default=12)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "ledger_overhead.csv")
    args = parser.parse_args()
    table = Table(args.output, FIELDS, hardware("cpu"))
    training = Training("cpu", 64, 64)
    training.block_ms(20)
    for job, step in (("300 modules", training.step), ("loop in Python", python_loop)):
        for period_ns in (1_000_000, 4_000_000):
            say(job)
            figures = compare(step, period_ns, args.pairs, args.block_steps)
            table.add(job=job, period_ms=period_ns / 1e6, pairs=args.pairs, load=os.getloadavg()[0], **figures)


if __name__ == "__main__":
    main()

"""How fast can a DataLoader hand out large pinned batches, and does it matter where workers put them?

    python benchmarks/batch_memory.py
    python benchmarks/batch_memory.py --workers 6,10,15 --batch-size 256

Nothing but the loader of examples/dlojz.py (generated images of 224 x 224, batches of 147 MiB at 256): as torch makes
it, and with the practice batch_memory, one after the other. ``ms_per_batch`` is taken once the queue that workers fill
at the start has been used up; ``cpu_ms_per_batch`` is the training process alone, its pinning thread included. Needs a
GPU: without one nothing is pinned. Appends to results/batch_memory.csv.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rows import Table, hardware
from torch.utils.data import DataLoader

from vivace.practices.batch_memory import BatchMemory
from vivace.train.data import GeneratedImages
from vivace.train.data.transforms import Compose, Normalize, ToTensor

FIELDS = (
    "workers", "practice", "batch_mib", "ms_per_batch", "cpu_ms_per_batch", "gib_per_s", "batches", "hardware", "torch",
)  # fmt: skip
PREFETCH = 3
RESULTS = Path(__file__).parent / "results" / "batch_memory.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="10", help="numbers, separated by commas")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--batches", type=int, default=60, help="timed batches")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("batch_memory.py: needs a GPU, batches are not pinned without one")
    table = Table(args.output, FIELDS, hardware("cuda"))
    for workers in map(int, args.workers.split(",")):
        for practice in ("", "batch_memory"):
            table.add(workers=workers, practice=practice, **timed(loader(workers, practice, args), args.batches))


def loader(workers: int, practice: str, args: argparse.Namespace) -> DataLoader[Any]:
    images = GeneratedImages(1_000_000, 224, transform=Compose([ToTensor(), Normalize()]))
    arguments: dict[str, Any] = {
        "dataset": images, "batch_size": args.batch_size, "shuffle": True, "num_workers": workers, "pin_memory": True,
        "prefetch_factor": PREFETCH, "collate_fn": None, "batch_sampler": None,
    }  # fmt: skip
    if practice:
        BatchMemory().loader(arguments)
    return DataLoader(**arguments)


def timed(loader: DataLoader[Any], batches: int) -> dict[str, Any]:
    iterator = iter(loader)
    for _ in range(loader.num_workers * (PREFETCH + 1)):  # the queue is full at the start
        images, _ = next(iterator)
    began, cpu_began = time.perf_counter(), time.process_time()
    for _ in range(batches):
        next(iterator)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    mib = images.numel() * images.element_size() / 2**20
    return {
        "batch_mib": mib,
        "ms_per_batch": 1e3 * seconds / batches,
        "cpu_ms_per_batch": 1e3 * cpu_seconds / batches,
        "gib_per_s": mib / 1024 * batches / seconds,
        "batches": batches,
    }


if __name__ == "__main__":
    main()

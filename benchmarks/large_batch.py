"""The course's large-batch table: CIFAR-10, ResNet-18, optimizers at batch 256 and 8,192. Accuracy and time to 90 %.

    python benchmarks/large_batch.py --data ../shared/data/cifar10-jpeg --seeds 3                 # one H200
    OMP_NUM_THREADS=1 python benchmarks/large_batch.py --generated --seeds 2                      # CPU, a small look

One training by ``vivace train cifar10`` per row, in a process of its own. With --generated the 2,048 images are made up
and easy, and the network is tiny: batch 32 for 8 epochs (512 steps) against batch 512 for 16 (64 steps). Rates are
scaled from batch 256: with the batch for SGD and LARS, with its root for the others. Those for the tiny network were
chosen at batch 512, the best of three each (a factor of four apart). Writes
results/large_batch.csv. ``seconds`` is training with validation, without start-up.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import Clock, Table, hardware, say

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "large_batch.csv"
FIELDS = (
    "data", "model", "optimizer", "batch", "epochs", "lr", "weight_decay", "seed", "steps", "val_accuracy", "val_loss",
    "seconds", "seconds_to_target", "target", "samples_per_s", "note", "hardware", "torch",
)  # fmt: skip

# Rate and decay at batch 256, and how the rate grows with the batch.
OPTIMIZERS: dict[str, tuple[float, float, str]] = {
    "sgd": (0.1, 5e-4, "linear"),
    "adamw": (1e-3, 0.05, "sqrt"),
    "lamb": (4e-3, 0.02, "sqrt"),
    "lars": (1.0, 5e-4, "linear"),
    "lion": (2e-4, 0.25, "sqrt"),
    "muon": (1e-3, 0.05, "sqrt"),
}
FOR_GENERATED: dict[str, tuple[float, float, str]] = {
    "sgd": (0.05, 5e-4, "linear"),
    "adamw": (7e-3, 0.01, "sqrt"),
    "lamb": (0.035, 0.01, "sqrt"),
    "lars": (2.0, 5e-4, "linear"),
    "lion": (4e-3, 0.01, "sqrt"),
    "muon": (0.02, 0.01, "sqrt"),
}
SMALL_NETWORK = """
from torch import nn


def small():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10),
    )
"""


def rate_and_decay(optimizer: str, batch: int, generated: bool) -> tuple[float, float]:
    at_256, decay, rule = (FOR_GENERATED if generated else OPTIMIZERS)[optimizer]
    times = batch / 256
    return at_256 * (times if rule == "linear" else math.sqrt(times)), decay


def words(options: argparse.Namespace, optimizer: str, batch: int, epochs: float, seed: int, folder: Path) -> list[str]:
    rate, decay = rate_and_decay(optimizer, batch, options.generated)
    changes: dict[str, object] = {
        "batch": batch, "duration": f"{epochs:g}ep", "seed": seed, "optim.name": optimizer,
        "optim.lr": rate, "optim.weight_decay": decay,
        "optim.nesterov": "true" if optimizer == "sgd" else "none", "schedule.name": "cosine",
        "schedule.warmup": f"{epochs / 15:g}ep", "validation.every": "1ep", "checkpoints.every": "1e6ep",
    }  # fmt: skip
    if options.generated:
        (folder / "small.py").write_text(SMALL_NETWORK)
        model = f"{folder / 'small.py'}:small"
        own = {"data.train": "generated", "data.val": "generated", "data.samples": 2048, "data.image_size": 16,
               "model.name": model,
               "speed.precision": "fp32", "speed.channels_last": "false", "data.classes": 10}  # fmt: skip
        changes |= own
    else:
        changes |= {"data.train": options.data / "train.parquet", "data.val": options.data / "test.parquet"}
    sets = [word for name, value in changes.items() for word in ("--set", f"{name}={value}")]
    return [sys.executable, "-m", "vivace", "train", "cifar10", "-o", str(folder), *sets]


def one(options: argparse.Namespace, table: Table, clock: Clock, optimizer: str, batch: int, seed: int) -> None:
    few, many = (8, 16) if options.generated else (30, 75)
    epochs = options.epochs or (few if batch <= 256 else many)
    rate, decay = rate_and_decay(optimizer, batch, options.generated)
    row = {"data": "generated" if options.generated else options.data.name, "optimizer": optimizer, "batch": batch,
           "epochs": epochs, "seed": seed, "lr": rate, "weight_decay": decay,
           "target": options.target, "model": "small" if options.generated else "resnet18"}  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = words(options, optimizer, batch, epochs, seed, folder)
        done = subprocess.run(command, capture_output=True, text=True, timeout=clock.timeout_s(3600))
        if done.returncode:
            table.add(**row, note=(done.stderr.strip().splitlines() or ["failed"])[0][:120])
            return
        (run,) = folder.glob("cifar10-*")
        record = json.loads((run / "trained.json").read_text())
        with (run / "validation.csv").open() as file:
            reached = [
                float(each["wall_s"]) for each in csv.DictReader(file) if float(each["val_accuracy"]) >= options.target
            ]
        kept = {key: record[key] for key in ("steps", "val_accuracy", "val_loss", "seconds", "samples_per_s")}
        table.add(**row, **kept, seconds_to_target=min(reached) if reached else "never")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with train.parquet and test.parquet")
    parser.add_argument("--generated", action="store_true")
    parser.add_argument("--optimizers", nargs="*", choices=list(OPTIMIZERS), default=list(OPTIMIZERS))
    parser.add_argument("--batches", nargs="*", type=int, help="default: 256 and 8,192; generated: 32 and 512")
    parser.add_argument("--epochs", type=float, help="default: 30, and 75 for batches above 256; generated: 8 and 16")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--target", type=float, default=0.9)
    parser.add_argument("--budget", type=float, help="minutes")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    if (options.data is None) is not options.generated:
        parser.error("one of --data and --generated")
    import torch

    clock, device = Clock(options.budget), "cuda" if torch.cuda.is_available() else "cpu"
    table = Table(options.output, FIELDS, hardware(device))
    for batch in options.batches or ([32, 512] if options.generated else [256, 8192]):
        for optimizer in options.optimizers:
            for seed in range(options.seeds):
                say(f"{optimizer}, batch {batch}, seed {seed}")
                row = {"optimizer": optimizer, "batch": batch, "seed": seed}
                table.attempt(clock, lambda: one(options, table, clock, optimizer, batch, seed), **row)  # noqa: B023


if __name__ == "__main__":
    main()

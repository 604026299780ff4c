"""Is the record right? dlojz measured by vivace, against the script's own clock and NVML read by hand.

    python benchmarks/measure_dlojz.py --device cuda --model resnet50 -b 256
    python benchmarks/measure_dlojz.py --device cpu --model resnet18 -b 16 --image-size 64 --workers 0

Three checks, in one process of the script: images/s against the times that the script prints itself (log lines that
lie inside the window), the parts against the step, and average power against the NVML counter read here, between the
arrival of the first and the last of those lines. Appends to results/measure_dlojz.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
SCRIPT = HERE.parent / "examples" / "dlojz.py"
LINE = re.compile(r"Step \[(\d+)/(\d+)\], Time: ([0-9.]+)")
FIELDS = (
    "device",
    "model",
    "batch_size",
    "check",
    "vivace",
    "reference",
    "ratio",
    "allowed",
    "ok",
    "hardware",
    "torch",
)


class EnergyByHand(threading.Thread):
    """(time, joules) of GPU 0 from the NVML counter, every 20 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.readings: list[tuple[float, float]] = []
        self.stop = threading.Event()

    def run(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        while not self.stop.wait(0.02):
            self.readings.append((time.monotonic(), pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3))

    def average_w(self, began: float, ended: float) -> float:
        inside = [reading for reading in self.readings if began <= reading[0] <= ended]
        return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("-b", "--batch-size", type=int, default=16)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "measure_dlojz.csv")
    args = parser.parse_args()

    energy = EnergyByHand() if args.device == "cuda" else None
    if energy:
        energy.start()
    record, lines = measure(args)
    if energy:
        energy.stop.set()
    rows = list(checks(args, record, lines, energy))
    for row in rows:
        print(row)
    write(args.output, rows)


def measure(args: argparse.Namespace) -> tuple[dict, list[tuple[float, int, float]]]:
    """The record, and the script's own log lines as (arrival, step, seconds since the line before)."""
    epoch_steps = 2 * args.steps  # a log line every tenth of it
    script = [
        sys.executable, str(SCRIPT), "--device", args.device, "--model", args.model, "-b", str(args.batch_size),
        "--image-size", str(args.image_size), "--num-workers", str(args.workers),
        "--dataset-size", str(epoch_steps * args.batch_size), "-e", "1",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as runs:
        command = [
            sys.executable, "-m", "vivace", "measure", "--json", "--steps", str(args.steps),
            "--output", runs, "--", *script,
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines = []
        assert process.stderr is not None
        assert process.stdout is not None
        for line in process.stderr:
            print(line, end="", flush=True)
            if match := LINE.search(line):
                lines.append((time.monotonic(), int(match[1]), float(match[3])))
        return json.loads(process.stdout.read()), lines


def checks(args, record, lines, energy):
    first, last = record["warmup_steps"], record["warmup_steps"] + record["steps"]
    gap = lines[1][1] - lines[0][1]
    inside = [(at, step, seconds) for at, step, seconds in lines if step - gap >= first and step <= last]
    clock_s = sum(seconds for _, _, seconds in inside)
    yield row(
        args, record, "images_per_s", record["samples_per_s"], gap * len(inside) * args.batch_size / clock_s, 0.02
    )
    means = sum(phase["mean"] for phase in record["phases_ms"].values())
    yield row(args, record, "sum_of_part_means_ms", means, record["step_ms"]["mean"], 0.03)
    medians = sum(phase["median"] for phase in record["phases_ms"].values())
    yield row(args, record, "sum_of_part_medians_ms", medians, record["step_ms"]["median"], 0.03)
    if energy:
        by_hand = energy.average_w(inside[0][0], inside[-1][0])
        yield row(args, record, "average_w", record["energy"]["average_w"], by_hand, 0.05)
        images_per_s = gap * len(inside) * args.batch_size / clock_s
        yield row(
            args, record, "joules_per_sample", record["energy"]["joules_per_sample"], by_hand / images_per_s, 0.05
        )


def row(args, record, check, value, reference, allowed):
    ratio = value / reference
    return {
        "device": args.device,
        "model": args.model,
        "batch_size": args.batch_size,
        "check": check,
        "vivace": round(value, 4),
        "reference": round(reference, 4),
        "ratio": round(ratio, 4),
        "allowed": f"±{allowed:.0%}",
        "ok": abs(ratio - 1) <= allowed,
        "hardware": record["devices"][0] if record["devices"] else record["machine"]["cpu"]["model"],
        "torch": record["origin"]["torch"],
    }


def write(path: Path, rows: list[dict]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

"""The trials of a tune as a CSV: what each set of practices reached, in the order in which they were tried.

python benchmarks/trials_table.py runs/dlojz-001 --script resnet >> benchmarks/results/tune_h200_trials.csv
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from vivace.records.trial import Trial

FIELDS = (
    "script", "trial", "practices", "outcome", "samples_per_s", "step_ms_mean", "loader_ms", "copy_ms", "forward_ms",
    "backward_ms", "optimizer_ms", "other_ms", "device_memory_gib", "joules_per_sample", "trial_s", "hardware", "torch",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of a tune")
    parser.add_argument("--script", required=True, help="name for the first column")
    parser.add_argument("--header", action="store_true")
    args = parser.parse_args()
    table = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    if args.header:
        table.writeheader()
    for path in sorted(args.folder.glob("trials/*/trial.json")):
        table.writerow({"script": args.script, **row(Trial.load(path))})


def row(trial: Trial) -> dict[str, object]:
    m = trial.measurement
    known: dict[str, object] = {
        "trial": trial.name, "practices": ",".join(trial.practices), "outcome": trial.outcome,
        "trial_s": round(trial.seconds, 1),
    }  # fmt: skip
    if m is None or m.step_ms is None:
        return known
    phases = {f"{name}_ms": round(spread.mean, 3) for name, spread in m.phases_ms.items() if f"{name}_ms" in FIELDS}
    return {
        **known, **phases,
        "samples_per_s": round(m.samples_per_s, 1) if m.samples_per_s else "",
        "step_ms_mean": round(m.step_ms.mean, 3),
        "device_memory_gib": round(m.memory.device.reserved_peak_gib, 2) if m.memory.device else "",
        "joules_per_sample": round(m.energy.joules_per_sample, 5) if m.energy.joules_per_sample else "",
        "hardware": ", ".join(m.devices) or "CPU", "torch": m.origin.torch,
    }  # fmt: skip


if __name__ == "__main__":
    main()

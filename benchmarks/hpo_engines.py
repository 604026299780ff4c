"""Optuna against Ray Tune on the same space: what one study finds, and what it takes.

    pip install -c constraints.txt -e '.[ray]'
    python benchmarks/hpo_engines.py [--seeds 3] [--trials 30]

Himmelblau's function with 27 epochs of 10 ms, two workers, TPE, successive halving: by Optuna's pruner, or by Ray's
scheduler. ``wall_s`` is the time of the whole study, and depends on what else the machine does (see ``load_1min``): the
two engines take turns. ``commands_s`` is the part of the commands themselves, both workers together. Writes
results/hpo_engines.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "hpo_engines.csv"
SCRIPT = Path(__file__).parents[1] / "examples" / "himmelblau.py"
SPACE = ("--param", "x=uniform(-5,5)", "--param", "y=uniform(-5,5)", "--metric", "min val_loss")
COMMAND = (sys.executable, "-IS", str(SCRIPT), "--x", "{x}", "--y", "{y}", "--epochs", "27", "--epoch-s", "0.01")


def study(engine: str, seed: int, trials: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        began, load = time.monotonic(), os.getloadavg()[0]
        done = subprocess.run(
            [
                sys.executable, "-m", "vivace", "hpo", "--engine", engine, *SPACE, "--pruner", "asha", "--trials",
                str(trials), "--workers", "2", "--seed", str(seed), "--confirm-seeds", "0", "--json", "--", *COMMAND,
            ],
            cwd=folder, check=True, stdout=subprocess.PIPE,
        )  # fmt: skip
        record = json.loads(done.stdout)
        states = [one["state"] for one in record["trials"]]
        return {
            "engine": engine, "seed": seed, "trials": trials, "complete": states.count("complete"),
            "pruned": states.count("pruned"), "best": f"{record['trials'][record['best']]['metric']:.4g}",
            "commands_s": f"{record['trial_s']:.1f}", "wall_s": f"{time.monotonic() - began:.1f}",
            "load_1min": f"{load:.1f}",
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=30)
    arguments = parser.parse_args()
    rows = []
    for seed in range(arguments.seeds):
        for engine in ("optuna", "ray"):
            rows.append(study(engine, seed, arguments.trials))
            print(rows[-1], flush=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

"""Does training at the rate that ``vivace find lr`` suggests beat a tenth of it and ten times it?

    python benchmarks/find_lr.py        # about 5 minutes on one core

Three unedited scripts of ``lr_jobs/`` and of the tests: a CNN with SGD and momentum, a character GPT with AdamW and a
schedule, a small network with plain SGD. For each: one range test, then trainings at the suggested rate, its tenth and
its tenfold, three seeds each. Writes results/find_lr.csv: validation loss at the end. CPU only.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "find_lr.csv"
JOBS = {
    "CNN, SGD with momentum": ([str(HERE / "lr_jobs" / "cnn.py")], ["--steps", "400"]),
    "GPT, AdamW": ([str(HERE / "lr_jobs" / "gpt.py")], ["--steps", "600"]),
    "small network, SGD": ([str(HERE.parent / "tests" / "race" / "scripts" / "digits.py")], ["--epochs", "20"]),
}
SEEDS = (0, 1, 2)
FIELDS = ("job", "own_rate", "steepest", "tenth_of_best", "diverges", "suggested", "rate", "times", "seed", "val_loss")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def found(script: list[str], folder: str) -> dict[str, float]:
    words = [sys.executable, "-m", "vivace", "find", "lr", "--json", "--", sys.executable, *script]
    done = subprocess.run(words, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def trained(script: list[str], arguments: list[str], rate: float, seed: int) -> float:
    """Seeds are shifted from outside, as in a race."""
    with tempfile.TemporaryDirectory() as folder:
        code = (
            "import runpy, sys, torch\nfrom vivace.measure.inside.comparing import seeds\n"
            f"torch.set_num_threads(1)\nseeds.install({seed})\n"
            f"sys.argv = {[*script, *arguments, '--lr', repr(rate)]!r}\n"
            "runpy.run_path(sys.argv[0], run_name='__main__')\n"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    losses = re.findall(r"val(?:idation)?[_ ]loss:? ([\d.]+|nan)", done.stdout, re.IGNORECASE)
    return float(losses[-1]) if losses and done.returncode == 0 else math.nan


def main() -> None:
    rows = []
    for job, (script, arguments) in JOBS.items():
        with tempfile.TemporaryDirectory() as folder:
            record = found([*script, *(["--epochs", "100"] if "digits" in script[0] else [])], folder)
        suggestions = {name: record[name] for name in ("steepest", "tenth_of_best", "diverges", "suggested")}
        for times in (0.1, 1, 10):
            for seed in SEEDS:
                rate = times * record["suggested"]
                row = {"job": job, "own_rate": max(record["own_rates"]), **suggestions, "rate": rate, "times": times}
                rows.append({**row, "seed": seed, "val_loss": trained(script, arguments, rate, seed)})
                print(*rows[-1].values(), sep=",", flush=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


if __name__ == "__main__":
    main()

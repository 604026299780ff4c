"""How sure are the speed-ups of the public scripts, with the noise of whole runs in them?

    python benchmarks/run_noise.py

A tune's interval with fewer than three pairs must hold how far runs of the unchanged job lie apart. It does since
these were taken; here it is added to the intervals on file, from the unchanged runs on file: half-widths of the two
chances in quadrature, in logarithms. Writes results/public_scripts_intervals.csv. No GPU needed.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections import Counter
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
FIELDS = (
    "script",
    "tune",
    "speedup",
    "low",
    "high",
    "pairs",
    "baselines",
    "run_noise",
    "low_with_runs",
    "high_with_runs",
)
_95_PERCENT = 1.96


def main() -> None:
    trials = rows("public_scripts_trials.csv")
    known, seen, out = {trial["script"] for trial in trials}, Counter[str](), []
    for row in rows("public_scripts.csv"):
        seen[row["script"]] += 1
        tune = f"{row['script']}-{seen[row['script']]}"
        tune = tune if tune in known else row["script"]
        if row["practices"]:
            out.append(widened(row, tune, [trial for trial in trials if trial["script"] == tune]))
    with (RESULTS / "public_scripts_intervals.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(out)
    for line in out:
        print("  ".join(f"{name}={value}" for name, value in line.items()))


def rows(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def widened(row: dict[str, str], tune: str, trials: list[dict[str, str]]) -> dict[str, object]:
    speeds = [float(trial["samples_per_s"]) for trial in trials if not trial["practices"] and trial["samples_per_s"]]
    pairs = sum("-round" in trial["trial"] and bool(trial["practices"]) for trial in trials)
    noise = statistics.stdev(map(math.log, speeds))
    middle, low, high = (float(row[name]) for name in ("speedup", "speedup_low", "speedup_high"))
    of_runs = _95_PERCENT * noise * math.sqrt(2 / pairs)
    return {
        "script": row["script"], "tune": tune, "speedup": middle, "low": low, "high": high, "pairs": pairs,
        "baselines": " ".join(map(str, speeds)), "run_noise": f"{noise:.4f}",
        "low_with_runs": f"{middle * math.exp(-math.hypot(math.log(middle / low), of_runs)):.3f}",
        "high_with_runs": f"{middle * math.exp(math.hypot(math.log(high / middle), of_runs)):.3f}",
    }  # fmt: skip


if __name__ == "__main__":
    main()

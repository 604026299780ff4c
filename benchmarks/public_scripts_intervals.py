"""How sure are the speedups on file, by the intervals that a proof has now? The public scripts', the GPT's, ResNet's.

    python benchmarks/public_scripts_intervals.py

Those tunes ran before the intervals were calibrated (``proof_calibration.py``). Their runs are on file: the unchanged
job in the search and in the pairs, and the tuned job. From these speeds the interval is computed again, with the
interval of that time, which held the scatter of the steps only, as its floor. Writes
results/public_scripts_intervals.csv. No GPU needed.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

from vivace.records.measurement import Measurement
from vivace.tune.comparison import by_pairs, speed
from vivace.tune.looks import is_proved, speedup_of

RESULTS = Path(__file__).parent / "results"
FIELDS = (
    "script", "tune", "pairs", "speedup", "low", "high", "proved", "run_sd", "unchanged", "tuned", "low_then",
    "high_then",
)  # fmt: skip
_95_PERCENT = NormalDist().inv_cdf(0.975)

LAST_TUNES = {"gpt": "gpt-2", "resnet": "resnet-3"}  # of tune_h200.csv, as tune_h200_trials.csv calls them

Row = dict[str, str]


def main() -> None:
    trials = rows("public_scripts_trials.csv")
    known, seen, out = {trial["script"] for trial in trials}, Counter[str](), []
    for row in rows("public_scripts.csv"):
        seen[row["script"]] += 1
        tune = f"{row['script']}-{seen[row['script']]}"
        tune = tune if tune in known else row["script"]
        if row["practices"]:
            out.append(again(row, tune, [trial for trial in trials if trial["script"] == tune]))
    out += [of_tune_h200(script, tune) for script, tune in LAST_TUNES.items()]
    with (RESULTS / "public_scripts_intervals.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(out)
    for line in out:
        print("  ".join(f"{name}={value}" for name, value in line.items()))


def rows(name: str) -> list[Row]:
    with (RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def of_tune_h200(script: str, tune: str) -> dict[str, object]:
    """The last tune of one of the two scripts that are held against hand-tuned loops."""
    *_, row = (row for row in rows("tune_h200.csv") if row["script"] == script and row["side"] == "tune")
    trials = [trial for trial in rows("tune_h200_trials.csv") if trial["script"] == tune]
    return again({"script": script, "speedup_low": row["ratio_low"], "speedup_high": row["ratio_high"]}, tune, trials)


def again(row: Row, tune: str, trials: Sequence[Row]) -> dict[str, object]:
    found = [runs_of(trials, name) for name in ("baseline", "baseline-again")]
    befores, afters = runs_of(trials, "baseline", in_pairs=True), runs_of(trials, "tuned", in_pairs=True)
    pairs = list(zip(befores, afters, strict=True))
    low_then, high_then = float(row["speedup_low"]), float(row["speedup_high"])
    step_error = math.log(high_then / low_then) / 2 / _95_PERCENT
    estimate = replace(by_pairs(pairs, [run for runs in found for run in runs]), step_error=step_error)
    speedup = speedup_of(estimate, len(pairs), len(pairs))
    return {
        "script": row["script"], "tune": tune, "pairs": len(pairs), "speedup": f"{speedup.median:.3f}",
        "low": f"{speedup.low:.3f}", "high": f"{speedup.high:.3f}",
        "proved": is_proved(estimate, len(pairs), len(pairs)), "run_sd": f"{estimate.run_sd:.4f}",
        "unchanged": _speeds([run for runs in (*found, befores) for run in runs]), "tuned": _speeds(afters),
        "low_then": low_then, "high_then": high_then,
    }  # fmt: skip


def runs_of(trials: Sequence[Row], label: str, in_pairs: bool = False) -> list[Measurement]:
    """Trials are called 001-baseline-again or 004-round0-tuned."""
    names = [(trial, trial["trial"].split("-", 1)[1]) for trial in trials]
    if in_pairs:
        chosen = [trial for trial, name in names if name.startswith("round") and name.endswith(f"-{label}")]
    else:
        chosen = [trial for trial, name in names if name == label]
    return [Measurement.model_construct(samples_per_s=float(t["samples_per_s"]), series_ms={}) for t in chosen]


def _speeds(runs: Sequence[Measurement]) -> str:
    return " ".join(f"{speed(run):.1f}" for run in runs)


if __name__ == "__main__":
    main()

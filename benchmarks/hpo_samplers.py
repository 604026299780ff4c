"""The best value at an equal budget: random search, TPE, and each pruner, on Himmelblau's and Rosenbrock's functions.

    python benchmarks/hpo_samplers.py

A trial is a training of 27 epochs whose loss falls to the function's value; how fast, depends on the configuration, so
that curves cross. The budget is that of 40 whole trials (1080 epochs), whoever spends it. Values are asked for,
reported and pruned by the functions that ship (the ledger, ``trial_run.report``); a formula replaces the command.
``best``: the function's value at the best trial that came to its end; median and quartiles over 12 seeds.
Writes results/hpo_samplers.csv. No GPU needed.
"""

from __future__ import annotations

import csv
import math
import os
import random
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import vivace.hpo.journal
from vivace.hpo.asked import Asked, PrunerName, SamplerName
from vivace.hpo.ledger import Claimed, Ledger
from vivace.hpo.outcome import Ended, Outcome
from vivace.hpo.space import Real
from vivace.hpo.trial_run import report

RESULTS = Path(__file__).parent / "results" / "hpo_samplers.csv"
FIELDS = ("function", "sampler", "pruner", "seeds", "median_best", "low_quartile", "high_quartile", "median_trials")
EPOCHS, BUDGET, SEEDS = 27, 27 * 40, 12
METHODS = (
    (SamplerName.RANDOM, PrunerName.NONE), (SamplerName.RANDOM, PrunerName.ASHA), (SamplerName.TPE, PrunerName.NONE),
    (SamplerName.TPE, PrunerName.MEDIAN), (SamplerName.TPE, PrunerName.ASHA), (SamplerName.TPE, PrunerName.HYPERBAND),
)  # fmt: skip


def himmelblau(x: float, y: float) -> float:
    return (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2


def rosenbrock(x: float, y: float) -> float:
    return (1 - x) ** 2 + 100 * (y - x**2) ** 2


FUNCTIONS: dict[str, Callable[[float, float], float]] = {"Himmelblau": himmelblau, "Rosenbrock": rosenbrock}


def _search(
    function: Callable[[float, float], float], sampler: SamplerName, pruner: PrunerName, seed: int
) -> tuple[float, int]:
    with tempfile.TemporaryDirectory() as folder:
        asked = Asked(
            name="s", command=("true", "{x}", "{y}"), cwd=folder, goal="min loss", order=("x", "y"), trials=10_000,
            reals=(Real("x", -5.0, 5.0), Real("y", -5.0, 5.0)), sampler=sampler, pruner=pruner, seed=seed,
            confirm_seeds=0,
        )  # fmt: skip
        ledger, left, trials = Ledger(Path(folder), asked), BUDGET, 0
        best = math.inf
        while left > 0:
            claimed = ledger.claim("bench")
            assert isinstance(claimed, Claimed)
            x, y = float(claimed.values["x"]), float(claimed.values["y"])
            value, pruned, epoch = function(x, y), False, 0
            pace = random.Random(f"{x} {y}").uniform(2, 6)
            while epoch < EPOCHS and not pruned and left > 0:
                epoch, left = epoch + 1, left - 1
                pruned = report(claimed, pruner, epoch, value + (20 + value) * math.exp(-pace * epoch / EPOCHS))
            trials += 1
            whole = epoch == EPOCHS and not pruned
            best = min(best, value) if whole else best
            outcome = Outcome(Ended.COMPLETE, value=value) if whole else Outcome(Ended.PRUNED)
            ledger.close(claimed, outcome)
        return best, trials


def main() -> None:
    vivace.hpo.journal.os.fsync = lambda _handle: None  # the disk is not what is measured here
    rows = []
    for name, function in FUNCTIONS.items():
        for sampler, pruner in METHODS:
            found = [_search(function, sampler, pruner, seed) for seed in range(SEEDS)]
            low, median, high = statistics.quantiles([best for best, _trials in found], n=4)
            rows.append({
                "function": name, "sampler": sampler, "pruner": pruner, "seeds": SEEDS, "median_best": f"{median:.4g}",
                "low_quartile": f"{low:.4g}", "high_quartile": f"{high:.4g}",
                "median_trials": f"{statistics.median(trials for _best, trials in found):.0f}",
            })  # fmt: skip
            print(rows[-1], os.getloadavg()[0], flush=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

"""Eight workers on one journal, many of them killed at random moments: is a trial ever lost, or counted twice?

    python benchmarks/hpo_chaos.py                 # 400 trials, 60 kills, on the journal; some minutes
    python benchmarks/hpo_chaos.py --postgres      # the same on a real PostgreSQL

The laws are those of tests/hpo/chaos.py, which the test suite checks in a small form: each of the 400 values is counted
once, was run to its end (unless three workers died over it), and never ran twice at a time. A failure is an assertion.
Appends to results/hpo_chaos.csv. No GPU needed.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from hpo.chaos import check_laws, run_chaos
from hpo.postgres import server

RESULTS = Path(__file__).parent / "results" / "hpo_chaos.csv"
FIELDS = (
    "storage", "seed", "trials", "workers", "kills", "given_back", "counted", "complete", "given_up", "runs_begun",
    "seconds", "load_1min",
)  # fmt: skip


@contextlib.contextmanager
def _storage(postgres: bool, folder: str) -> Iterator[str | None]:
    if not postgres:
        yield None
        return
    os.chmod(folder, 0o755)
    with server(Path(folder) / "pg") as url:
        yield url


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos") as folder, _storage(asked.postgres, folder) as url:
        study = Path(folder) / "study"
        study.mkdir()
        chaos = run_chaos(study, asked.trials, asked.workers, asked.kills, 0.1, asked.seed, url)
        check_laws(chaos, study, asked.trials)
    states = [one.state for one in chaos.record.trials]
    row = {
        "storage": "PostgreSQL" if asked.postgres else "journal", "seed": asked.seed, "trials": asked.trials,
        "workers": asked.workers, "kills": chaos.kills, "given_back": chaos.record.given_back, "counted": len(states),
        "complete": states.count("complete"), "given_up": states.count("workers killed"),
        "runs_begun": sum(len(runs) for runs in chaos.begun.values()), "seconds": f"{chaos.seconds:.0f}",
        "load_1min": f"{os.getloadavg()[0]:.0f}",
    }  # fmt: skip
    is_new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)
    print(row)


if __name__ == "__main__":
    main()

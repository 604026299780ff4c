"""What vivace hpo adds to a trial, with 1, 2 and 8 workers on one journal.

    python benchmarks/hpo_overhead.py

Each trial is a command of a few milliseconds that reports its metric six times. ``added_cpu_ms`` is the processor time
of the workers and their commands in a trial, less that of the bare command; it hardly depends on what else the machine
does. ``wall_ms`` is the time from one trial to the next, all workers together; it does (see ``load_1min``). Python's
start of each worker is left out by the difference between a long and a short study. Writes results/hpo_overhead.csv.
"""

from __future__ import annotations

import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vivace.hpo.asked import Asked, PrunerName, write_asked
from vivace.hpo.ledger import Ledger
from vivace.hpo.space import Real
from vivace.hpo.team import Team

RESULTS = Path(__file__).parent / "results" / "hpo_overhead.csv"
SCRIPT = Path(__file__).parents[1] / "tests" / "hpo" / "scripts" / "himmelblau.py"
FIELDS = ("workers", "trials", "wall_ms", "cpu_ms", "bare_cpu_ms", "added_cpu_ms", "load_1min")
SHORT, LONG = 8, 72


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _bare_cpu_s(runs: int = 40) -> float:
    before = _cpu_s()
    for _ in range(runs):
        subprocess.run([sys.executable, "-IS", str(SCRIPT), "1", "2"], check=True, stdout=subprocess.DEVNULL)
    return (_cpu_s() - before) / runs


def _study(workers: int, trials: int) -> tuple[float, float]:
    """Seconds of the clock and of the processors for a whole study."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Asked(
            name="overhead", command=(sys.executable, "-IS", str(SCRIPT), "{x}", "{y}"), cwd=folder,
            goal="min val_loss", reals=(Real("x", -5.0, 5.0), Real("y", -5.0, 5.0)), order=("x", "y"), trials=trials,
            workers=workers, pruner=PrunerName.NONE, confirm_seeds=0,
        )  # fmt: skip
        write_asked(Path(folder), asked)
        Ledger(Path(folder), asked).begin()
        began, cpu = time.monotonic(), _cpu_s()
        team = Team(Path(folder), asked, [], os.cpu_count() or 1)
        with team.at_work():
            while team.is_at_work:
                time.sleep(0.02)
                team.look()
        return time.monotonic() - began, _cpu_s() - cpu


def main() -> None:
    bare = _bare_cpu_s()
    rows = []
    for workers in (1, 2, 8):
        short, long = _study(workers, SHORT), _study(workers, LONG)
        wall, cpu = ((after - before) / (LONG - SHORT) for before, after in zip(short, long, strict=True))
        rows.append({
            "workers": workers, "trials": LONG, "wall_ms": f"{1e3 * wall:.0f}", "cpu_ms": f"{1e3 * cpu:.1f}",
            "bare_cpu_ms": f"{1e3 * bare:.1f}", "added_cpu_ms": f"{1e3 * (cpu - bare):.1f}",
            "load_1min": f"{os.getloadavg()[0]:.0f}",
        })  # fmt: skip
        print(rows[-1], flush=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

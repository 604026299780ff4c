"""The table of ``docs/slurm.md`` from ``results/chaos_slurm.csv``: what became of each kind of fault.

python benchmarks/chaos_table.py
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "chaos_slurm.csv"
# The first one whose pattern a fault's name holds.
KINDS = {
    "full disk, also with a warning": "disk is full",
    "controller stopped or killed for 3–15 s, also with a warning": "controller",
    "node dead, or set down": "node (dies|set)",
    "node drained (also with a warning), slurmd killed and started again": "drained|slurmd",
    "preempted, or requeued by an administrator": "preempted|requeue by",
    "time limit": "time limit",
    "suspended or stopped, and continued": "suspended|stopped and continued",
    "SIGUSR1, SIGUSR2": "SIGUSR|two warnings",
    "SIGTERM, SIGHUP, SIGINT to the batch script": "SIG(TERM|HUP|INT) to the batch script",
    "SIGTERM to a rank, torchrun, srun, `vivace run`, all processes": "SIGTERM",
    "SIGKILL, SIGSEGV, SIGINT, SIGHUP to any of them": "SIG(KILL|SEGV|INT|HUP)",
}
OUTCOMES = ("went on", "started again", "ended, sent again", "finished")


def kind_of(fault: str) -> str:
    return next(kind for kind, pattern in KINDS.items() if re.search(pattern, fault))


def main() -> None:
    with RESULTS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if not row["verdict"].startswith("gave up")]
    print(f"| fault | times | {' | '.join(OUTCOMES)} | steps lost, at most | laws broken |")
    print("|---" * (len(OUTCOMES) + 4) + "|")
    for kind in KINDS:
        mine = [row for row in rows if kind_of(row["fault"]) == kind]
        outcomes = Counter(row["outcome"] for row in mine)
        lost = max((int(row["steps_lost"]) for row in mine), default=0)
        broken = sum(row["verdict"] != "holds" for row in mine)
        counts = " | ".join(str(outcomes[outcome]) for outcome in OUTCOMES)
        print(f"| {kind} | {len(mine)} | {counts} | {lost} | {broken} |")
    shapes = Counter((row["launcher"], row["ranks"]) for row in rows)
    print(f"\n{len(rows)} faults;", ", ".join(f"{name} {ranks}: {n}" for (name, ranks), n in sorted(shapes.items())))


if __name__ == "__main__":
    main()

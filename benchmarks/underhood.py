"""What each technique written from scratch sends, and how far it is from torch: ``results/underhood.csv``.

    python benchmarks/underhood.py [--ranks 2 4 8]

Counts, not timings: the same on every machine. The labs cite them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rows import Table, hardware

from vivace.parallel.underhood.demonstrations import DEMONSTRATIONS, Shown
from vivace.parallel.underhood.ranks import on_ranks
from vivace.parallel.underhood.wire import Wire

RESULTS = Path(__file__).resolve().parent / "results" / "underhood.csv"
FIELDS = ("demonstration", "ranks", "of", "figure", "value", "largest_difference", "hardware", "torch")


def every(wire: Wire) -> dict[str, Shown]:
    return {name: each.run(wire) for name, each in DEMONSTRATIONS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    asked = parser.parse_args()
    RESULTS.unlink(missing_ok=True)
    table = Table(RESULTS, FIELDS, hardware("cpu"))
    for ranks in asked.ranks:
        by_rank = on_ranks(every, ranks)
        for name, shown in by_rank[0].items():
            worst = max(each[name].difference for each in by_rank)
            for row in shown.rows:
                for figure, value in zip(shown.head[1:], row[1:], strict=True):
                    told = {"demonstration": name, "ranks": ranks, "of": row[0], "figure": figure, "value": value}
                    table.add(**told, largest_difference=worst)


if __name__ == "__main__":
    main()

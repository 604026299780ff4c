"""Runs a demonstration: ``python -m vivace.parallel.underhood ring --ranks 4``."""

from __future__ import annotations

import argparse
import sys

from vivace.parallel.underhood.demonstrations import DEMONSTRATIONS, Demonstration, Shown
from vivace.parallel.underhood.ranks import RankFailed, on_ranks


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m vivace.parallel.underhood", description=__doc__)
    names = "\n".join(f"  {each.name:14} {each.about}" for each in DEMONSTRATIONS.values())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"demonstrations:\n{names}"
    parser.add_argument("name", nargs="?", choices=list(DEMONSTRATIONS), help="without a name: list them")
    parser.add_argument("--ranks", type=int, default=2, help="processes on this machine (default: 2)")
    asked = parser.parse_args(words)
    if asked.name is None:
        parser.print_help()
        return 0
    demonstration = DEMONSTRATIONS[asked.name]
    if not demonstration.at_least <= asked.ranks <= 64:
        parser.error(f"{asked.name} needs {demonstration.at_least} to 64 ranks")
    try:
        by_rank = on_ranks(demonstration.run, asked.ranks)
    except RankFailed as failed:
        print(failed, file=sys.stderr)
        return 1
    return _tell(demonstration, by_rank)


def _tell(demonstration: Demonstration, by_rank: list[Shown]) -> int:
    first = by_rank[0]
    print(f"{demonstration.about}, {len(by_rank)} ranks; the figures are rank 0's\n")
    widths = [max(len(str(row[i])) for row in (first.head, *first.rows)) for i in range(len(first.head))]
    for row in (first.head, *first.rows):
        print("  ".join(f"{cell!s:>{width}}" for cell, width in zip(row, widths, strict=True)))
    for note in first.notes:
        print(f"\n{note}")
    worst = max(each.difference for each in by_rank)
    print(f"\nlargest relative difference to torch in one process: {worst:.1e}")
    if not all(each.agrees for each in by_rank):
        print("this is more than rounding explains", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Every script of ``tests/scale/zoo``, unedited: one process beside several ranks, all printed numbers compared.

    python benchmarks/scale_equality.py [--ranks 2 3] [--modes ddp zero1] [--only cnn,gan]

Writes ``results/scale_equality.csv``: the largest relative difference of any printed number, and what was split.
The scripts run in fp64, where rounding cannot hide a wrong number.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ZOO = ROOT / "tests" / "scale" / "zoo"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def numbers(text: str) -> list[float]:
    return [float(word) for word in NUMBER.findall(text)]


def difference(alone: str, together: str) -> float | None:
    """The largest relative one; None where other lines were printed."""
    first, second = numbers(alone), numbers(together)
    if NUMBER.sub("#", alone) != NUMBER.sub("#", together):
        return None
    return max((abs(a - b) / max(1e-12, abs(a)) for a, b in zip(first, second, strict=True)), default=0.0)


def run(script: Path, ranks: int, mode: str, folder: Path) -> tuple[str, str]:
    """What it printed, and what became of the mode."""
    command = [sys.executable, str(script)]
    if ranks > 1:
        vivace = [sys.executable, "-m", "vivace", "run", "--no-prove"]
        command = [*vivace, "--ranks", str(ranks), "--with", mode, "--", *command]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    records = list(folder.glob("*/*/run.json"))
    told = json.loads(records[0].read_text())["told"][mode]["text"] if records else ""
    return done.stdout, told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--modes", nargs="+", default=["ddp", "zero1"])
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    rows = []
    for script in sorted(ZOO.glob("*.py")):
        if asked.only and script.stem not in asked.only.split(","):
            continue
        with tempfile.TemporaryDirectory() as folder:
            alone, _ = run(script, 1, "", Path(folder))
        for mode, ranks in itertools.product(asked.modes, asked.ranks):
            with tempfile.TemporaryDirectory() as folder:
                together, told = run(script, ranks, mode, Path(folder))
            found = difference(alone, together)
            row = {
                "script": script.stem, "mode": mode, "ranks": ranks, "numbers": len(numbers(alone)),
                "largest_relative_difference": "other lines" if found is None else f"{found:.1e}", "told": told,
            }  # fmt: skip
            rows.append(row)
            print(*row.values(), sep="  ", flush=True)
    if not asked.only:
        with (ROOT / "benchmarks" / "results" / "scale_equality.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()

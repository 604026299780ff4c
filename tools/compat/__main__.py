"""``python -m tools.compat``: parse, make environments, try each, write the CSV."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tools.compat.environments import MATRIX, ROOT, Cell, NoPython, make_cell, make_vivace
from tools.compat.suite import STEPS, Bench, Row, try_all
from tools.compat.table import markdown, read_rows, write_rows

RESULTS = ROOT / "benchmarks" / "results" / "compatibility.csv"


def main() -> int:
    options = _parser().parse_args()
    if options.table:
        print(markdown(read_rows(options.csv)), end="")
        return 0
    options.envs.mkdir(parents=True, exist_ok=True)
    vivace = make_vivace(options.envs)
    faults = 0
    for cell in options.only or MATRIX:
        began = time.monotonic()
        try:
            python = make_cell(cell, options.envs, options.reuse)
        except NoPython as error:
            print(f"{cell.name}: left out, {error}", flush=True)
            continue
        rows = _try(cell, vivace, python, options.steps or list(STEPS))
        faults += sum(row.outcome == "fault" for row in rows)
        known = [row for row in read_rows(options.csv) if not _same(row, rows)]
        write_rows(options.csv, sorted([*known, *rows], key=lambda row: (row.torch, row.python)))
        print(f"{cell.name}: {time.monotonic() - began:.0f} s", flush=True)
    return 1 if faults else 0


def _try(cell: Cell, vivace: Path, python: Path, steps: list[str]) -> list[Row]:
    rows: list[Row] = []

    def report(row: Row) -> None:
        rows.append(row)
        print(f"{cell.name:16} {row.step:22} {row.outcome:8} {row.detail}", flush=True)

    folder = Path(tempfile.mkdtemp(prefix=f"compat-{cell.name}-"))
    try_all(Bench(vivace, python, folder, cell), steps, report)
    if any(row.outcome == "fault" for row in rows):
        print(f"{cell.name}: records and logs are in {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return rows


def _same(row: Row, new: list[Row]) -> bool:
    return any((row.torch, row.python, row.step) == (one.torch, one.python, one.step) for one in new)


def _parser() -> argparse.ArgumentParser:
    cells = ", ".join(f"{cell.torch}/{cell.python}" for cell in MATRIX)
    parser = argparse.ArgumentParser(
        prog="python -m tools.compat",
        description=(
            "Try vivace on trainings with other releases of torch and Python. vivace is installed with pip in an "
            "environment of its own, without torch. Each environment with torch takes about 5 GB and several minutes "
            "to install, less with uv, which shares CUDA's libraries; the suite takes 5 to 10 minutes for each on two "
            "cores. Environments are left where they are."
        ),
        epilog=f"Without --only: {cells}. A Python that is not here (pyenv, or on the path) is left out.",
    )
    add = parser.add_argument
    add("--envs", type=Path, default=ROOT / ".compat", help="folder of the environments (default: .compat)")
    add("--reuse", action="store_true", help="take environments that are there already")
    add("--only", type=Cell.parse, nargs="+", metavar="TORCH/PYTHON", help="these only: 2.4.0/3.9 2.15.0/3.13")
    add("--steps", choices=list(STEPS), nargs="+", help="these only (default: all)")
    add("--csv", type=Path, default=RESULTS, help="where rows go; rows of other environments stay")
    add("--table", action="store_true", help="try nothing: print the rows as the table of docs/compatibility.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Writes ``docs/scale_scripts.md`` from ``results/scale_equality.csv`` and ``results/scale_public.csv``.

python benchmarks/scale_table.py
"""

from __future__ import annotations

import ast
import csv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "scale_scripts.md"
MODES = ("ddp", "zero1", "fsdp")
Row = dict[str, str]
HEAD = """\
# Unedited scripts over ranks: the table

{scripts} scripts of [tests/scale/zoo](../tests/scale/zoo), in fp64, as one process and on 2 and 3 ranks. A figure is
the largest relative difference of any printed number. Files are those of one process in every row. A batch that is
gathered is right, but every rank has all of it from there on. {refused} of {pairs} pairs of script and mode are
refused, with the reason. Written by `benchmarks/scale_table.py` from [the
measurements](../benchmarks/results/scale_equality.csv) of `benchmarks/scale_equality.py`.
"""
PUBLIC = """
## Public scripts

As their authors published them, with generated data and a seed, stopped after some optimizer steps: two ranks beside
one process. Sums over the parameters and the next random numbers are printed at the end and compared, too; 0 means the
same digits everywhere, in full precision for these and in the script's own for its losses. Nothing of theirs is here;
`benchmarks/scale_public.py` says how they were started ([measurements](../benchmarks/results/scale_public.csv)).
"""


def page() -> str:
    ours, public = _read("scale_equality"), _read("scale_public")
    scripts = sorted({row["script"] for row in ours})
    refused = sorted({(r["script"], r["mode"], r["told"]) for r in ours if _difference(r) is None})
    counted = HEAD.format(
        scripts=len(scripts), refused=len({pair[:2] for pair in refused}), pairs=len(scripts) * len(MODES)
    )
    lines = [
        counted,
        "| script | what it does | ddp | zero1 | fsdp | gathered by | runs whole |",
        "|---|---|---|---|---|---|---|",
        *(_line(name, [row for row in ours if row["script"] == name]) for name in scripts),
        "\nRefused:\n",
        *(f"- `{script}` with {mode}: {why}" for script, mode, why in refused),
        PUBLIC,
        "| script | repository | dtype | steps | ddp | zero1 | fsdp |",
        "|---|---|---|---|---|---|---|",
        *(
            _public(name, [row for row in public if row["script"] == name])
            for name in dict.fromkeys(row["script"] for row in public)
        ),
    ]
    return "\n".join(lines) + "\n"


def _read(name: str) -> list[Row]:
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _difference(row: Row) -> float | None:
    found = row["largest_relative_difference"]
    return None if found == "refused" else float(found)


def _largest(rows: list[Row], mode: str) -> str:
    found = [_difference(row) for row in rows if row["mode"] == mode]
    known = [each for each in found if each is not None]
    return "refused" if len(known) < len(found) else f"{max(known):.0e}" if max(known) else "0"


def _line(name: str, rows: list[Row]) -> str:
    about = (ast.get_docstring(ast.parse((ROOT / "tests/scale/zoo" / f"{name}.py").read_text())) or "").rstrip(".")
    gathered = sorted({word.split(" ×")[0] for row in rows for word in row["gathered"].split(", ") if word})
    notes = [note for row in rows for note in row["told"].split("; ") if "runs whole on every rank" in note]
    whole = sorted({note.partition(" runs whole")[0] for note in notes})
    cells = [f"`{name}`", about, *(_largest(rows, mode) for mode in MODES), ", ".join(gathered), ", ".join(whole)]
    return f"| {' | '.join(cells)} |"


def _public(name: str, rows: list[Row]) -> str:
    cells = [name, rows[0]["repository"], rows[0]["dtype"], rows[0]["steps"], *(_largest(rows, mode) for mode in MODES)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()

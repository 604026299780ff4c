"""Claim: the interval that `vivace plan` prints holds 95 % of the rows of a table that it was not made with.

python benchmarks/plan_interval.py FOLDER_OF_TABLES [OUT.csv]

For each file the planner's constants are put back to what they would be without it (data/left_out.toml), its
rows are planned, and the interval comes from the errors of the other files alone (vivace/plan/grading/spread.py: each
file counts once, quantiles stretched by one factor). The factor is the smallest with which left-out files
hold 95 % of their rows on average. Files: every table of FOLDER, the tables of benchmarks/data, and the rows
of results/plan_h200*.csv, whose plans were made before the measurement. Whole runs have two sources only, too few
for a spread of their own: their interval is that of a step times what runs lose (vivace/plan/data/intervals.toml).

Writes one line per kind and file, and prints what goes into vivace/plan/data/intervals.toml.
"""

from __future__ import annotations

import csv
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from math import exp, log
from pathlib import Path

from vivace.plan.facts.constants import override
from vivace.plan.grading.spread import AIM, FileErrors, inside, left_out_share, spread_of, stretch_for
from vivace.plan.grading.validate import grade_file
from vivace.plan.time.layer import clear_cache

HERE = Path(__file__).parent
MEASURED_AFTER = ("plan_h200.csv", "plan_h200_unpadded.csv")
COLUMNS = (
    "kind",
    "file",
    "rows",
    "weight",
    "ratio_min",
    "ratio_median",
    "ratio_max",
    "low_without",
    "high_without",
    "inside_without_pct",
)

Row = tuple[str, str, float]
"""(kind, file, ln(measured / planned))."""


def left_out_rows(path: Path, constants: dict[str, object]) -> Iterator[Row]:
    """The rows of a file, planned without what it had taught."""
    clear_cache()
    with override(**constants):
        grade = grade_file(path)
    clear_cache()
    for row in grade.grades:
        if not row.used:
            continue
        if row.predicted_s and row.measured_s and not row.from_gpu_hours:
            yield "time", grade.file, log(row.measured_s / row.predicted_s)
        if row.predicted_gib and row.measured_gib:
            yield "memory", grade.file, log(row.measured_gib / row.predicted_gib)


def earlier_rows(path: Path) -> Iterator[Row]:
    """Plans that were made before their measurement."""
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["status"] == "ok":
                yield "time", path.name, log(float(row["step_ms_median"]) / float(row["predicted_step_ms"]))
                yield "memory", path.name, log(float(row["reserved_gib"]) / float(row["predicted_reserved_gib"]))


def every_row(folder: Path) -> Iterator[Row]:
    left_out = tomllib.loads((HERE / "data" / "left_out.toml").read_text(encoding="utf-8"))
    for path in sorted([*folder.glob("*.csv"), *(HERE / "data").glob("*.csv")], key=lambda path: path.name):
        yield from left_out_rows(path, left_out.get(path.name, {}))
    for name in MEASURED_AFTER:
        yield from earlier_rows(HERE / "results" / name)


def by_kind(rows: Iterator[Row]) -> dict[str, list[FileErrors]]:
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for kind, file, error in rows:
        errors[kind][file].append(error)
    return {
        kind: [FileErrors(file, tuple(logs)) for file, logs in sorted(files.items())] for kind, files in errors.items()
    }


def lines(kind: str, files: list[FileErrors], stretch: float) -> Iterator[list[object]]:
    for each in files:
        spread = spread_of([other for other in files if other is not each], stretch)
        ratios = sorted(exp(error) for error in each.logs)
        figures = (ratios[0], ratios[len(ratios) // 2], ratios[-1], spread.low, spread.high)
        share = f"{100 * inside(each, spread):.1f}"
        yield [kind, each.file, len(ratios), each.weight, *(f"{value:.3f}" for value in figures), share]


def main() -> None:
    folder = Path(sys.argv[1])
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / "results" / "plan_interval.csv"
    kinds = by_kind(every_row(folder))
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for kind in ("time", "memory"):
            files = kinds[kind]
            stretch = stretch_for(files)
            whole, share = spread_of(files, stretch), left_out_share(files, stretch)
            writer.writerows(lines(kind, files, stretch))
            total = [kind, "all files", sum(len(each.logs) for each in files), len(files), "", "", ""]
            writer.writerow([*total, f"{whole.low:.3f}", f"{whole.high:.3f}", f"{100 * share:.1f}"])
            print(f"[{kind}] low = {whole.low:.2f}, high = {whole.high:.2f}: {len(files)} files, stretch {stretch:.2f}")
            plain = left_out_share(files, 1.0)
            print(f"  left-out rows inside: {share:.1%} (aim {AIM:.0%}), without stretch {plain:.1%}")


if __name__ == "__main__":
    main()

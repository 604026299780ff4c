"""Claim: `vivace plan` predicts published training times and memory, on files that its constants were not
fitted on.

python benchmarks/plan_validate.py FOLDER_OF_TABLES [OUT.csv]

Grades every CSV of the folder, writes one line per file (bad ones too) and prints the table for README and
docs.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from vivace.plan.grading.score import quantile
from vivace.plan.grading.validate import grade_file
from vivace.records.plan_grade import FileGrade

COLUMNS = (
    "file",
    "fitted",
    "rows",
    "rows_used",
    "step_time_rows",
    "step_time_mape",
    "step_time_inside_pct",
    "worst_row",
    "worst_row_error_pct",
    "gpu_hours_rows",
    "gpu_hours_mape",
    "gpu_hours_inside_pct",
    "memory_rows",
    "memory_mape",
    "memory_inside_pct",
    "oom_right",
    "oom_wrong",
    "fits_right",
    "fits_wrong",
    "rank_correlation",
    "rank_groups",
    "skipped",
)


def cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, dict):
        return "; ".join(f"{count} x {reason}" for reason, count in list(value.items())[:4])
    return "" if value is None else str(value)


def markdown(grades: list[FileGrade]) -> str:
    lines = [
        "| file | | rows used | step time MAPE | worst row | inside | memory MAPE | inside | rank correlation "
        "| GPU-hours MAPE | inside |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for grade in grades:
        figures = [
            "" if value is None else f"{value:.{digits}f}{unit}"
            for value, digits, unit in (
                (grade.step_time_mape, 1, " %"),
                (grade.worst_row_error_pct, 0, " %"),
                (grade.step_time_inside_pct, 0, " %"),
                (grade.memory_mape, 1, " %"),
                (grade.memory_inside_pct, 0, " %"),
                (grade.rank_correlation, 2, ""),
                (grade.gpu_hours_mape, 1, " %"),
                (grade.gpu_hours_inside_pct, 0, " %"),
            )
        ]
        kind = "fitted" if grade.fitted else "unseen"
        lines.append(f"| {grade.file} | {kind} | {grade.rows_used} of {grade.rows} | " + " | ".join(figures) + " |")
    return "\n".join(lines)


def spread(grades: list[FileGrade], language_only: bool = True) -> tuple[float, float]:
    """Tenth and ninetieth percentile of measured over predicted; each file counts once (40 draws of its
    quantiles).
    """
    ratios: list[float] = []
    for grade in grades:
        own = [
            g.measured_s / g.predicted_s
            for g in grade.grades
            if g.used and g.measured_s and g.predicted_s and not g.from_gpu_hours
        ]
        if len(own) >= 8 and (not language_only or any("mb" in g.layout for g in grade.grades)):
            ratios += [quantile(own, (i + 0.5) / 40) for i in range(40)]
    return quantile(ratios, 0.1), quantile(ratios, 0.9)


def main() -> None:
    folder = Path(sys.argv[1])
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent / "results" / "plan_validate.csv"
    grades = []
    for path in sorted(folder.glob("*.csv")):
        grades.append(grade_file(path))
        print(f"{path.name}: {grades[-1].rows_used} of {grades[-1].rows} rows", flush=True)
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for grade in grades:
            writer.writerow([cell(getattr(grade, name)) for name in COLUMNS])
    used = [grade for grade in grades if grade.rows_used]
    print(markdown(used))
    for name, chosen in (("all", used), ("unseen", [grade for grade in used if not grade.fitted])):
        low, high = spread(chosen)
        print(f"eight of ten rows, {name} language tables: measured / predicted {low:.2f} to {high:.2f}")


if __name__ == "__main__":
    main()

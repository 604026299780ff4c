"""Tables of ``vivace plan``: scaling curves, the Pareto set, and grades on published tables.

Knows records and nothing else. Called by ``vivace.cli.plan``.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from vivace.records.plan import PlanPoint
from vivace.records.plan_grade import FileGrade
from vivace.report.fitting import FittingTable
from vivace.report.plan_layout import layout_in_short
from vivace.report.plan_units import figure

__all__ = ["show_grades", "show_pareto", "show_scaling"]


def _table(title: str, names: tuple[str, ...], left: tuple[str, ...] = ("layout",)) -> Table:
    table = FittingTable(title=title)
    for name in names:
        table.add_column(name, justify="left" if name in left else "right")
    return table


def show_pareto(points: list[PlanPoint], console: Console) -> None:
    names = ("GPUs", "layout", "ms/step", "samples/s", "GiB", "GPU-s/sample", "J/sample")
    table = _table("no other is better in time, GPU-hours and energy at once", names)
    for one in points:
        table.add_row(
            f"{one.gpus:,}",
            layout_in_short(one.layout),
            figure(one.step_ms),
            figure(one.samples_per_s),
            figure(one.memory_gib),
            figure(one.gpus / one.samples_per_s),
            figure(one.joules_per_sample),
        )
    console.print(table)


def show_scaling(points: list[PlanPoint], title: str, console: Console) -> None:
    table = _table(title, ("GPUs", "layout", "ms/step", "samples/s", "efficiency"))
    for one in points:
        efficiency = "" if one.efficiency is None else f"{100 * one.efficiency:.0f} %"
        row = (layout_in_short(one.layout), figure(one.step_ms), figure(one.samples_per_s), efficiency)
        table.add_row(f"{one.gpus:,}", *row)
    console.print(table)


def show_grades(grades: list[FileGrade], console: Console) -> None:
    table = FittingTable(title="predictions against published tables")
    table.add_column("file", overflow="fold", min_width=16)
    for name in ("kind", "rows", "time %", "worst %", "inside", "memory %", "inside", "OOM", "rank"):
        table.add_column(name, justify="left" if name == "kind" else "right", no_wrap=True)
    for grade in grades:
        called = grade.oom_right + grade.oom_wrong
        table.add_row(
            grade.file,
            "fitted" if grade.fitted else "unseen",
            f"{grade.rows_used}/{grade.rows}",
            _figure(grade.step_time_mape),
            _figure(grade.worst_row_error_pct),
            _percent(grade.step_time_inside_pct),
            _figure(grade.memory_mape),
            _percent(grade.memory_inside_pct),
            f"{grade.oom_right}/{called}" if called else "",
            _figure(grade.rank_correlation, 2),
        )
    console.print(table)
    console.print(
        "[dim]time and memory: mean absolute error; inside: rows that lie in the printed interval; "
        "OOM: out-of-memory rows predicted as such; rank: Spearman[/]"
    )
    for grade in grades:
        _show_details(grade, console)


def _show_details(grade: FileGrade, console: Console) -> None:
    said = []
    if grade.worst_row:
        said.append(f"worst row {grade.worst_row}")
    if grade.fits_wrong:
        said.append(f"{grade.fits_wrong} rows ran although they were predicted not to fit")
    if grade.gpu_hours_mape is not None:
        inside = f"{_percent(grade.gpu_hours_inside_pct)} of them inside the interval"
        said.append(f"GPU-hours of whole runs off by {grade.gpu_hours_mape:.1f} %, {inside}")
    said += [f"{count} skipped: {reason}" for reason, count in list(grade.skipped.items())[:5]]
    if len(grade.skipped) > 5:
        said.append(f"{len(grade.skipped) - 5} more reasons (--rows lists every row)")
    for sentence in said:
        console.print(f"{grade.file}: {sentence}", style="dim", markup=False, highlight=False)


def _figure(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} %"

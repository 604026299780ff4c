"""How a plan looks in a terminal: a table, the stacked memory picture, the timeline of a step.

Prints what records hold and computes nothing but bar lengths. Called by ``vivace.cli.plan``.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vivace.plan.scaling import ScalingPoint
from vivace.plan.search import Found
from vivace.plan.validate import FileGrade
from vivace.records.plan import Plan, PlanInterval

__all__ = ["bar", "show_candidates", "show_grades", "show_plan", "show_scaling"]

COLOURS = (
    "blue",
    "cyan",
    "green",
    "yellow",
    "magenta",
    "red",
    "bright_blue",
    "bright_cyan",
    "bright_green",
    "bright_yellow",
    "bright_magenta",
)
WIDTH = 64


def bar(parts: dict[str, float], full: float, width: int = WIDTH) -> Text:
    """One stacked bar; what is left of ``full`` stays as dots."""
    text, used = Text(), 0
    total = max(full, sum(parts.values())) or 1.0
    done = 0.0
    for colour, value in zip(COLOURS * 2, parts.values(), strict=False):
        done += value
        cells = round(width * done / total) - used
        text.append("█" * cells, style=colour)
        used += cells
    text.append("·" * max(0, width - used), style="dim")
    return text


def _range(value: PlanInterval, unit: str, digits: int = 1) -> str:
    return f"{value.estimate:,.{digits}f} {unit}  [{value.low:,.{digits}f} to {value.high:,.{digits}f}]"


def _legend(parts: dict[str, float], unit: str) -> Text:
    text = Text()
    for colour, (name, value) in zip(COLOURS * 2, parts.items(), strict=False):
        if value > 0.005 * sum(parts.values()):
            text.append("■ ", style=colour)
            text.append(f"{name.replace('_', ' ')} {value:,.1f} {unit}   ")
    return text


def _layout(plan: Plan) -> str:
    layout = plan.layout
    words = [f"data {layout.data}" + (f" (ZeRO {layout.zero})" if layout.zero else "")]
    for name, value in (
        ("tensor", layout.tensor),
        ("pipeline", layout.pipeline),
        ("context", layout.context),
    ):
        if value > 1:
            words.append(f"{name} {value}")
    if layout.virtual_stages > 1:
        words.append(f"{layout.virtual_stages} virtual stages")
    if layout.sequence_parallel:
        words.append("sequence parallel")
    words.append(f"micro-batch {layout.micro_batch} x {layout.micro_batches}")
    words.append(f"recompute {layout.recompute}")
    return ", ".join(words)


def show_plan(plan: Plan, console: Console) -> None:
    table = Table(title=f"{plan.model} on {plan.gpus} x {plan.gpu} ({plan.cluster})", show_header=False)
    colour = {"fits": "green", "tight": "yellow"}.get(plan.verdict, "red")
    table.add_row("parameters", f"{plan.parameters:,}")
    table.add_row("layout", _layout(plan))
    table.add_row("batch", f"{plan.global_batch} per step" + (f" of {plan.seq_len} tokens" if plan.seq_len else ""))
    table.add_row("precision", f"{plan.precision}, {plan.optimizer}, {plan.software}")
    table.add_row(
        "memory per GPU",
        f"{_range(plan.memory_gib, 'GiB')} of {plan.available_gib:.1f}: [{colour}]{plan.verdict}[/]",
    )
    table.add_row("step", _range(plan.step_ms, "ms"))
    rate = f"{plan.samples_per_s:,.1f} samples/s"
    table.add_row("throughput", rate + (f", {plan.tokens_per_s:,.0f} tokens/s" if plan.tokens_per_s else ""))
    table.add_row("per GPU", f"{plan.tflops_per_gpu:.0f} TFLOP/s, MFU {plan.mfu_pct:.1f} %, HFU {plan.hfu_pct:.1f} %")
    if plan.run is not None:
        _add_run(table, plan)
    console.print(table)
    console.print("memory ", bar(plan.memory_parts_gib, plan.available_gib), sep="")
    console.print(_legend(plan.memory_parts_gib, "GiB"))
    console.print("step   ", bar(plan.step_parts_ms, plan.step_ms.estimate), sep="")
    console.print(_legend(plan.step_parts_ms, "ms"))
    for advice in plan.advice:
        console.print(f"[bold]sizing[/] {advice}")
    for other in plan.alternatives:
        console.print(
            f"[dim]also[/] {_short(other.layout)}: {other.step_ms:,.0f} ms, {other.memory_gib:.0f} GiB; {other.why}"
        )
    for note in plan.assumptions:
        console.print(f"[dim]assumed[/] {note}")
    if plan.run is None:
        amount = "--tokens 1e12" if plan.seq_len else "--epochs 90"
        console.print(f"for days, energy and cost add: {amount} --price 2.5 (of a GPU-hour)", highlight=False)


def _short(layout: object) -> str:
    values = layout.model_dump()  # type: ignore[attr-defined]
    text = f"dp{values['data']} tp{values['tensor']} pp{values['pipeline']}"
    text += f" cp{values['context']}" if values["context"] > 1 else ""
    text += f" v{values['virtual_stages']}" if values["virtual_stages"] > 1 else ""
    return text + f" zero{values['zero']} mb{values['micro_batch']} {values['recompute']}"


def _add_run(table: Table, plan: Plan) -> None:
    run = plan.run
    assert run is not None
    amount = f"{run.tokens:,.3g} tokens, " if run.tokens else ""
    table.add_row("training", f"{amount}{run.steps:,} steps")
    table.add_row("days", _range(run.days, "days", 2))
    table.add_row("GPU-hours", _range(run.gpu_hours, "h", 0))
    table.add_row("energy", f"{_range(run.energy_mwh, 'MWh', 2)}, {run.co2_t:,.2f} t CO2")
    if run.cost is not None:
        table.add_row("cost", f"{run.cost:,.0f} {run.currency}")
    if run.pieces is not None:
        table.add_row("jobs", f"{run.pieces} of at most {run.hours_per_piece:.1f} h ({run.qos})")


def show_candidates(found: list[Found], console: Console) -> None:
    table = Table(title="layouts, best first")
    for name in ("GPUs", "layout", "ms/step", "samples/s", "GiB", "GPU-s/sample", "J/sample"):
        table.add_column(name, justify="left" if name == "layout" else "right")
    for one in found:
        table.add_row(
            str(one.job.layout.gpus),
            one.job.layout.describe(),
            f"{one.seconds * 1e3:,.1f}",
            f"{1 / one.seconds_per_sample:,.1f}",
            f"{one.memory_gib:.1f}",
            f"{one.gpu_seconds_per_sample:.3f}",
            f"{one.joules_per_sample:,.0f}",
        )
    console.print(table)


def show_scaling(points: list[ScalingPoint], title: str, console: Console) -> None:
    table = Table(title=title)
    for name in ("GPUs", "layout", "ms/step", "samples/s", "efficiency"):
        table.add_column(name, justify="left" if name == "layout" else "right")
    for point in points:
        table.add_row(
            str(point.gpus),
            point.best.job.layout.describe(),
            f"{point.best.seconds * 1e3:,.1f}",
            f"{point.samples_per_s:,.1f}",
            f"{100 * point.efficiency:.0f} %",
        )
    console.print(table)


def show_grades(grades: list[FileGrade], console: Console) -> None:
    table = Table(title="predictions against published tables")
    table.add_column("file", overflow="fold", min_width=16)
    for name in ("kind", "rows", "time %", "worst %", "memory %", "OOM", "rank"):
        table.add_column(name, justify="left" if name == "kind" else "right", no_wrap=True)
    for grade in grades:
        called = grade.oom_right + grade.oom_wrong
        table.add_row(
            grade.file,
            "fitted" if grade.fitted else "unseen",
            f"{grade.rows_used}/{grade.rows}",
            _figure(grade.step_time_mape),
            _figure(grade.worst_row_error_pct),
            _figure(grade.memory_mape),
            f"{grade.oom_right}/{called}" if called else "",
            _figure(grade.rank_correlation, 2),
        )
    console.print(table)
    console.print("[dim]time and memory: mean absolute error; OOM: out-of-memory rows called right; rank: Spearman[/]")
    for grade in grades:
        _show_details(grade, console)


def _show_details(grade: FileGrade, console: Console) -> None:
    if grade.worst_row:
        console.print(f"[dim]{grade.file}: worst row {grade.worst_row}[/]")
    if grade.fits_wrong:
        console.print(f"[dim]{grade.file}: {grade.fits_wrong} rows ran although they were called too large[/]")
    if grade.gpu_hours_mape is not None:
        console.print(f"[dim]{grade.file}: GPU-hours of whole runs off by {grade.gpu_hours_mape:.1f} %[/]")
    for reason, count in list(grade.skipped.items())[:5]:
        console.print(f"[dim]{grade.file}: {count} skipped: {reason}[/]")
    if len(grade.skipped) > 5:
        console.print(f"[dim]{grade.file}: {len(grade.skipped) - 5} more reasons (--rows lists every row)[/]")


def _figure(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"

"""Grade the planner on published tables: predict every row that can be predicted, and say how wrong each is.

Reads the CSV files that it is given. No constant is fitted here. Called by the CLI and
``benchmarks/plan_validate.py``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from vivace.plan.facts.constants import fitted_files
from vivace.plan.grading.language_rows import Skip, question_from_row, with_file_context
from vivace.plan.grading.measured import measured_memory, measured_seconds, ran_out_of_memory
from vivace.plan.grading.score import mean_absolute_percentage_error, spearman
from vivace.plan.grading.tables import Table, read_table
from vivace.plan.grading.vision_rows import question_from_vision_row, timm_as_vision
from vivace.plan.memory.peak import first_stage_memory, memory
from vivace.plan.run.intervals import Kind, interval
from vivace.plan.time.step import step_time
from vivace.records.plan_grade import FileGrade, RowGrade

__all__ = ["grade_file", "grade_row"]


def _inside(measured: float | None, predicted: float | None, kind: Kind) -> bool | None:
    """Whether the interval that a plan prints would have held the measured figure."""
    if measured is None or predicted is None:
        return None
    around = interval(predicted, kind)
    return around.low <= measured <= around.high


def grade_row(row: dict[str, str]) -> RowGrade:
    """One row of the 42-column schema."""
    name, row_id = row.get("model", ""), row.get("row_id", "")
    try:
        question = question_from_row(row)
    except Skip as reason:
        return RowGrade(row_id=row_id, model=name, skipped=str(reason))
    job = question.job
    seconds, need = step_time(job).total, memory(job)
    measured, held = measured_seconds(row, job), measured_memory(row)
    failed = ran_out_of_memory(row)
    from_gpu_hours = measured is not None and measured[1] == "gpu_hours"
    # Published figures of pipelines are rank 0's; whether a job fits is decided by its fullest rank.
    held_gib = held.predicted(first_stage_memory(job)) if held else need.total_gib
    skipped = None if measured or held or failed else "no time, throughput or memory that can be converted"
    return RowGrade(
        row_id=row_id,
        model=name,
        layout=str(job.layout),
        group=f"{name}|{job.layout.gpus}|{job.seq_len}|{job.machine.gpu.name}",
        predicted_s=None if failed else seconds,
        measured_s=None if failed or measured is None else measured[0],
        time_inside=_inside(
            None if failed or measured is None else measured[0], seconds, "run" if from_gpu_hours else "time"
        ),
        predicted_gib=held_gib,
        measured_gib=held.gib if held else None,
        memory_inside=_inside(held.gib if held else None, held_gib, "memory"),
        ran_out_of_memory=failed,
        predicted_out_of_memory=need.total_gib > job.machine.gpu.memory_gib,
        skipped=skipped,
        notes=question.notes,
        samples=job.global_batch,
        from_gpu_hours=from_gpu_hours,
    )


def _vision(row: dict[str, str]) -> RowGrade:
    name, row_id = row.get("model", ""), row.get("row_id", "")
    try:
        question = question_from_vision_row(row)
    except Skip as reason:
        return RowGrade(row_id=row_id, model=name, skipped=str(reason))
    seconds = question.predict().total
    return RowGrade(
        row_id=row_id,
        model=name,
        layout=f"{row.get('n_gpus')} GPU x {row.get('batch_per_gpu')} {row.get('precision')}",
        group=question.group,
        predicted_s=seconds,
        measured_s=question.measured_s,
        time_inside=_inside(question.measured_s, seconds, "time"),
        samples=question.samples,
        notes=question.notes,
    )


def _grades(table: Table) -> list[RowGrade]:
    rows = with_file_context(table.rows, f"{table.comments}\n{table.path.name}")
    if table.kind == "language":
        return [grade_row(row) for row in rows]
    if table.kind == "vision":
        return [_vision(row) for row in rows]
    if table.kind == "timm":
        return [_vision(timm_as_vision(row)) for row in rows]
    reason = f"columns of another kind: {', '.join(table.columns[:5])}, …"
    return [RowGrade(row_id=row.get("row_id", ""), model=row.get("model", ""), skipped=reason) for row in table.rows]


def _rank_correlation(grades: list[RowGrade]) -> tuple[float | None, int]:
    """Mean over groups of the same model, sequence and GPU count, weighted by their rows.

    Time per sample is ranked: with the time per step, a larger batch alone would look like a good prediction.
    """
    groups: dict[str, list[RowGrade]] = defaultdict(list)
    for grade in grades:
        if grade.predicted_s is not None and grade.measured_s is not None:
            groups[grade.group].append(grade)
    scores = []
    for members in groups.values():
        layouts = {member.layout for member in members}
        if len(layouts) < 3:
            continue
        score = spearman(
            [(m.predicted_s or 0) / m.samples for m in members],
            [(m.measured_s or 0) / m.samples for m in members],
        )
        if score is not None:
            scores.append((score, len(members)))
    if not scores:
        return None, 0
    return sum(score * n for score, n in scores) / sum(n for _, n in scores), len(scores)


def _share(inside: list[bool | None]) -> float | None:
    return 100.0 * sum(bool(one) for one in inside) / len(inside) if inside else None


def grade_file(path: Path | str) -> FileGrade:
    """Read, predict and score one file."""
    table = read_table(path)
    grades = _grades(table)
    used = [grade for grade in grades if grade.used]
    every = [g for g in used if g.time_error_pct is not None]
    timed, runs = [g for g in every if not g.from_gpu_hours], [g for g in every if g.from_gpu_hours]
    remembered = [(g.predicted_gib, g.measured_gib) for g in used if g.predicted_gib and g.measured_gib]
    worst = max(timed, key=lambda g: abs(g.time_error_pct or 0.0), default=None)
    correlation, groups = _rank_correlation([g for g in used if not g.from_gpu_hours])
    failed = [g for g in used if g.ran_out_of_memory]
    ran = [g for g in used if not g.ran_out_of_memory and g.predicted_gib is not None]
    return FileGrade(
        file=Path(path).name,
        fitted=Path(path).name in fitted_files(),
        rows=len(grades),
        rows_used=len(used),
        skipped=dict(Counter(g.skipped for g in grades if g.skipped)),
        step_time_rows=len(timed),
        step_time_mape=mean_absolute_percentage_error([(g.predicted_s or 0, g.measured_s or 1) for g in timed]),
        step_time_inside_pct=_share([g.time_inside for g in timed]),
        worst_row=f"{worst.row_id} ({worst.model}, {worst.layout})" if worst else None,
        worst_row_error_pct=worst.time_error_pct if worst else None,
        gpu_hours_rows=len(runs),
        gpu_hours_mape=mean_absolute_percentage_error([(g.predicted_s or 0, g.measured_s or 1) for g in runs]),
        gpu_hours_inside_pct=_share([g.time_inside for g in runs]),
        memory_rows=len(remembered),
        memory_mape=mean_absolute_percentage_error([(p or 0, m or 1) for p, m in remembered]),
        memory_inside_pct=_share([g.memory_inside for g in used if g.has_memory]),
        oom_right=sum(g.predicted_out_of_memory for g in failed),
        oom_wrong=sum(not g.predicted_out_of_memory for g in failed),
        fits_right=sum(not g.predicted_out_of_memory for g in ran),
        fits_wrong=sum(g.predicted_out_of_memory for g in ran),
        rank_correlation=correlation,
        rank_groups=groups,
        grades=tuple(grades),
    )

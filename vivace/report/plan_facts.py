"""The figures of a plan as (name, text) rows: the same words in the terminal and on the page.

Knows the ``Plan`` record and nothing else.
"""

from __future__ import annotations

from vivace.records.plan import Plan, PlanRun
from vivace.report.plan_layout import layout_in_full
from vivace.report.plan_units import carbon, count, days, energy, figure, gpu_hours, money, span, step

__all__ = ["plan_rows", "run_rows"]

Rows = list[tuple[str, str]]


def plan_rows(plan: Plan) -> Rows:
    rate = f"{figure(plan.samples_per_s)} samples/s"
    rows = [
        ("parameters", f"{plan.parameters:,}"),
        ("layout", layout_in_full(plan.layout, plan.global_batch)),
        ("batch", f"{plan.global_batch:,} per step" + (f" of {plan.seq_len:,} tokens" if plan.seq_len else "")),
        ("precision", f"{plan.precision}, {plan.optimizer}, {plan.software}"),
        ("memory per GPU", f"{span(plan.memory_gib, 'GiB')} of {plan.available_gib:.1f}: {plan.verdict}"),
        ("step", step(plan.step_ms)),
        ("throughput", rate + (f", {figure(plan.tokens_per_s)} tokens/s" if plan.tokens_per_s else "")),
        ("per GPU", f"{plan.tflops_per_gpu:.0f} TFLOP/s, MFU {plan.mfu_pct:.1f} %, HFU {plan.hfu_pct:.1f} %"),
    ]
    return rows + (run_rows(plan.run) if plan.run is not None else [])


def run_rows(run: PlanRun) -> Rows:
    amount = f"{count(run.tokens)} tokens, " if run.tokens else ""
    rows = [
        ("training", f"{amount}{run.steps:,} steps"),
        ("time", days(run.days)),
        ("GPU time", gpu_hours(run.gpu_hours)),
        ("energy", f"{energy(run.energy_mwh)}, {carbon(run.co2_t)}"),
    ]
    if run.cost is not None:
        rows.append(("cost", money(run.cost, run.currency)))
    if run.pieces is not None and run.hours_per_piece is not None:
        jobs = "1 job" if run.pieces == 1 else f"{run.pieces} jobs"
        rows.append(("jobs", f"{jobs} of at most {figure(run.hours_per_piece)} h ({run.qos})"))
    return rows

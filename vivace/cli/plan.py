"""``vivace plan``: parse, call ``vivace.plan``, print. No logic of its own.

``plan_app`` is mounted by ``vivace.cli.app``; ``python -m vivace.cli.plan`` works alone. ``vivace plan
MODEL …`` is the command ``model``, which need not be typed.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from vivace.cli.console import make_console
from vivace.cli.plan_questions import Amount, Prices, read_tokens, run_question
from vivace.errors import UserError
from vivace.plan.budget import Budget, BudgetQuestion, answer_budget
from vivace.plan.limits import at_least, more_than_zero
from vivace.plan.models import built_in_names
from vivace.plan.planning import Wanted, make_plan, scaling_of
from vivace.plan.request import LayoutRequest, Request, find_model, find_site, transformer_job
from vivace.plan.transformer import Transformer
from vivace.plan.validate import grade_file
from vivace.plan.whole_run import RunQuestion
from vivace.records.base import write_text_atomically
from vivace.records.plan import Plan
from vivace.records.plan_grade import FileGrade
from vivace.report.page import page
from vivace.report.plan_budget_view import show_budget
from vivace.report.plan_html import plan_section
from vivace.report.plan_tables import show_grades, show_pareto, show_scaling
from vivace.report.plan_view import show_plan

__all__ = ["main", "plan_app"]


class _ModelByDefault(TyperGroup):
    """``vivace plan llama-3-8b`` means ``vivace plan model llama-3-8b``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["model", *args]
        return super().parse_args(ctx, args)


plan_app = typer.Typer(
    cls=_ModelByDefault,
    no_args_is_help=True,
    help="Memory, time, energy, cost and the best layout of a training job, before it is queued.",
)

# A group class that reads argv needs an app with at least two commands: model, budget, models, validate
# below.
Text = Annotated[str | None, typer.Option()]
Whole = Annotated[int | None, typer.Option()]
Real = Annotated[float | None, typer.Option()]


@plan_app.command("model", help="Plan one model on one cluster (the default command).")
def model_command(
    model: Annotated[
        str, typer.Argument(help="a built-in name, config.json, file.py:function, or a name for --layers …")
    ],
    cluster: Annotated[str | None, typer.Option(help="a cluster of the catalogue")] = None,
    gpu: Annotated[str | None, typer.Option(help="a GPU, when no cluster is given")] = None,
    gpus: Annotated[int, typer.Option(help="number of GPUs")] = 1,
    gpus_per_node: int = 8,
    global_batch: Annotated[int | None, typer.Option(help="sequences or images per step over all GPUs")] = None,
    seq_len: Whole = None,
    image_size: Annotated[int | None, typer.Option(help="side of the images (224 when omitted)")] = None,
    precision: Annotated[str | None, typer.Option(help="bf16, fp16, fp8, tf32, fp32, bf16-pure, …")] = None,
    optimizer: Annotated[str | None, typer.Option(help="adamw for transformers, sgd for images when omitted")] = None,
    attention: Annotated[str, typer.Option(help="flash, fused-softmax or eager")] = "flash",
    compile: Annotated[bool, typer.Option("--compile/--no-compile")] = False,
    tp: Annotated[int | None, typer.Option(help="tensor parallel")] = None,
    pp: Annotated[int | None, typer.Option(help="pipeline parallel")] = None,
    cp: Annotated[int | None, typer.Option(help="context parallel")] = None,
    virtual_stages: Whole = None,
    schedule: Annotated[str | None, typer.Option(help="1f1b, interleaved, gpipe, zb1p or zbv")] = None,
    sp: Annotated[bool | None, typer.Option("--sp/--no-sp", help="sequence parallel")] = None,
    zero: Annotated[int | None, typer.Option(help="0 to 3; 3 is FSDP full shard")] = None,
    shard_size: Annotated[int | None, typer.Option(help="ranks per shard group (hybrid)")] = None,
    micro_batch: Whole = None,
    recompute: Annotated[str | None, typer.Option(help="none, selective or full")] = None,
    do_search: Annotated[bool, typer.Option("--search", help="find the best layout")] = False,
    keep: Annotated[int, typer.Option(help="layouts to show")] = 5,
    scaling: Annotated[bool, typer.Option(help="strong and weak scaling curves up to --gpus")] = False,
    tokens: Annotated[str | None, typer.Option(help="tokens of the whole training, such as 1e12 or 366e9")] = None,
    epochs: Real = None,
    dataset_size: Annotated[float | None, typer.Option(help="samples of one epoch (ImageNet when omitted)")] = None,
    price: Annotated[float | None, typer.Option(help="price of a GPU-hour")] = None,
    currency: str = "EUR",
    grid: Annotated[str, typer.Option(help="country of the grid, or g CO2 per kWh")] = "fr",
    pue: Real = None,
    qos: Text = None,
    measurement: Annotated[Path | None, typer.Option(help="measurement.json of this model on one GPU")] = None,
    layers: Whole = None,
    hidden: Whole = None,
    heads: Whole = None,
    kv_heads: Whole = None,
    ffn: Whole = None,
    vocab: Whole = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the Plan record")] = False,
    save: Annotated[Path | None, typer.Option(help="write the Plan record")] = None,
    html: Annotated[Path | None, typer.Option(help="write a self-contained HTML page")] = None,
) -> None:
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads, "ffn": ffn, "vocab": vocab}
    request = Request(
        model=model,
        cluster=cluster,
        gpu=gpu,
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        global_batch=global_batch,
        seq_len=seq_len,
        image_size=image_size,
        precision=precision,
        optimizer=optimizer,
        attention=attention,
        compile=compile,
        layout=LayoutRequest(tp, pp, cp, virtual_stages, sp, zero, shard_size, micro_batch, recompute, schedule),
        sizes={name: value for name, value in sizes.items() if value is not None},
    )
    at_least("--keep", keep, 1)
    site, found = find_site(request), find_model(request)
    amount, prices = Amount(tokens, epochs, dataset_size), Prices(price, currency, grid, pue, qos)
    wanted = Wanted(run_question(found, amount, prices), measurement, do_search, keep)
    console = make_console(stderr=as_json)
    if scaling:
        curves = scaling_of(request, found, site, measurement)
        show_scaling(curves.strong, "strong scaling: the batch stays", console)
        show_scaling(curves.weak, "weak scaling: the batch per GPU stays", console)
        show_pareto(curves.pareto, console)
    plan = make_plan(request, found, site, wanted)
    _write(plan, save, html)
    if as_json:
        print(plan.to_json(), end="")
    else:
        show_plan(plan, console)


def _write(plan: Plan, save: Path | None, html: Path | None) -> None:
    if save is not None:
        plan.save(save)
    if html is not None:
        write_text_atomically(html, page(f"{plan.model} on {plan.gpus} GPUs", [plan_section(plan)]))


@plan_app.command("budget", help="Backwards: the largest model, the shortest or the cheapest run within limits.")
def budget_command(
    model: Annotated[str, typer.Argument(help="the model, or the one to scale")],
    cluster: Text = None,
    gpu: Text = None,
    gpus: Annotated[int, typer.Option(help="GPUs at most")] = 8,
    tokens: Annotated[str | None, typer.Option(help="tokens to train on (20 per parameter when omitted)")] = None,
    days: Real = None,
    gpu_hours: Real = None,
    energy_mwh: Real = None,
    cost: Real = None,
    price: Real = None,
    global_batch: Whole = None,
    seq_len: Whole = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    at_least("--price", price, 0)
    for option, limit in (("--days", days), ("--gpu-hours", gpu_hours), ("--energy-mwh", energy_mwh), ("--cost", cost)):
        more_than_zero(option, limit)
    if cost is not None and price is None:
        raise UserError("--cost needs the price of a GPU-hour", hint="add --price 2.5")
    request = Request(model, cluster, gpu, gpus, global_batch=global_batch, seq_len=seq_len, compile=True)
    site, found = find_site(request), find_model(request)
    if not isinstance(found, Transformer):
        raise UserError(
            f"{model} is an image model; budgets are for transformers", hint="use vivace plan MODEL --epochs"
        )
    job, _ = transformer_job(request, found, site)
    amount = read_tokens(tokens) if tokens is not None else 20.0 * found.parameters
    question = RunQuestion(amount / found.seq_len, amount, price)
    limits = Budget(days, gpu_hours, energy_mwh, cost)
    answer = answer_budget(BudgetQuestion(job, site, gpus, question, limits, batch_given=global_batch is not None))
    if as_json:
        print(answer.to_json(), end="")
    else:
        show_budget(answer, make_console())


@plan_app.command("models", help="List the built-in models.")
def models_command() -> None:
    from vivace.plan.zoo import known_image_models

    print("\n".join([*built_in_names(), *known_image_models()]))


@plan_app.command("validate", help="Grade the planner on published tables (CSV).")
def validate_command(
    files: Annotated[list[Path], typer.Argument(help="tables in the 42-column schema, or simpler vision tables")],
    as_json: Annotated[bool, typer.Option("--json", help="print the grades as JSON")] = False,
    rows: Annotated[Path | None, typer.Option(help="write predicted and measured of every row (CSV)")] = None,
) -> None:
    grades = [grade_file(path) for path in files]
    if rows is not None:
        _write_rows(rows, grades)
    if as_json:
        print(json.dumps([grade.as_json() for grade in grades], indent=2))
    else:
        show_grades(grades, make_console())


def _write_rows(path: Path, grades: list[FileGrade]) -> None:
    columns = (
        "file",
        "row_id",
        "model",
        "layout",
        "predicted_s",
        "measured_s",
        "time_error_pct",
        "predicted_gib",
        "measured_gib",
        "ran_out_of_memory",
        "predicted_out_of_memory",
        "skipped",
        "notes",
    )
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for grade in grades:
            for row in grade.grades:
                values = [getattr(row, name) for name in columns[1:-1]]
                writer.writerow([grade.file, *("" if v is None else v for v in values), "; ".join(row.notes)])


def main() -> None:
    """For ``python -m vivace.cli.plan``: a user's error is a sentence and a hint, not a traceback."""
    try:
        plan_app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

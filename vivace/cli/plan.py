"""``vivace plan``: parse, call ``vivace.plan``, print. No logic of its own.

``plan_app`` is mounted by ``vivace.cli.app``; ``python -m vivace.cli.plan`` works alone. ``vivace plan
MODEL …`` is the command ``model``, which need not be typed.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from vivace.cli.console import make_console
from vivace.cli.plan_law import scaling_law_command
from vivace.cli.plan_questions import Amount, Prices, read_tokens, run_question
from vivace.errors import UserError
from vivace.files import write_user_text
from vivace.plan.answering.budget import Budget, BudgetQuestion, answer_budget
from vivace.plan.answering.find_model import find_model
from vivace.plan.answering.find_site import find_site
from vivace.plan.answering.make_job import transformer_job
from vivace.plan.answering.planning import Wanted, make_plan, scaling_of
from vivace.plan.answering.request import LayoutRequest, Request
from vivace.plan.facts.limits import at_least, more_than_zero
from vivace.plan.grading.validate import grade_file
from vivace.plan.images.names import known_image_models
from vivace.plan.models.built_in import built_in_names
from vivace.plan.models.transformer import Transformer
from vivace.plan.run.whole_run import RunQuestion
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

MODEL, MACHINE, LAYOUT, RUN, OUTPUT = (
    "Model and step",
    "Machine",
    "Layout (searched when omitted)",
    "Whole run",
    "Output",
)
LIMITS = "Limits"


def _option(words: str, panel: str = MODEL, *names: str) -> Any:
    return typer.Option(*names, help=words, rich_help_panel=panel, show_default=False)


@plan_app.command("model", help="Plan one model on one machine. This is the default command.")
def model_command(
    model: Annotated[
        str,
        typer.Argument(
            help="A built-in name (`vivace plan models`), a config.json or its folder, file.py:function, "
            "or any name together with --layers, --hidden and --heads.",
        ),
    ],
    global_batch: Annotated[int | None, _option("Sequences or images per step over all GPUs.")] = None,
    seq_len: Annotated[int | None, _option("Tokens per sequence. Default: the model's own length.")] = None,
    image_size: Annotated[int | None, _option("Side of the images in pixels. Default: 224.")] = None,
    precision: Annotated[
        str | None,
        _option("bf16, fp16, fp8, tf32, fp32 or bf16-pure. Default: bf16, or fp16 where the GPU has no bf16."),
    ] = None,
    optimizer: Annotated[
        str | None,
        _option("adamw, adam, sgd, lion, lamb, adafactor or sgd-plain. Default: adamw; sgd for image models."),
    ] = None,
    attention: Annotated[str, _option("flash, fused-softmax or eager. Default: flash.")] = "flash",
    compile: Annotated[bool, _option("Plan with torch.compile.", MODEL, "--compile/--no-compile")] = False,
    layers: Annotated[int | None, _option("Layers of a transformer given by its sizes.")] = None,
    hidden: Annotated[int | None, _option("Its hidden size.")] = None,
    heads: Annotated[int | None, _option("Its attention heads.")] = None,
    kv_heads: Annotated[int | None, _option("Its key-value heads. Default: as many as heads.")] = None,
    ffn: Annotated[int | None, _option("Its feed-forward size. Default: 4 x hidden.")] = None,
    vocab: Annotated[int | None, _option("Its vocabulary. Default: 50,304.")] = None,
    measurement: Annotated[
        Path | None, _option("A measurement.json of this model on one GPU: compute is scaled to it.")
    ] = None,
    cluster: Annotated[str | None, _option("A cluster of the catalogue, or your own .toml file.", MACHINE)] = None,
    gpu: Annotated[str | None, _option("A GPU, when there is no cluster.", MACHINE)] = None,
    gpus: Annotated[int, _option("Number of GPUs. Default: 1.", MACHINE)] = 1,
    gpus_per_node: Annotated[int, _option("GPUs of a node, with --gpu. Default: 8.", MACHINE)] = 8,
    tp: Annotated[int | None, _option("Tensor-parallel size.", LAYOUT)] = None,
    pp: Annotated[int | None, _option("Pipeline-parallel size.", LAYOUT)] = None,
    cp: Annotated[int | None, _option("Context-parallel size.", LAYOUT)] = None,
    virtual_stages: Annotated[int | None, _option("Virtual stages per pipeline rank (interleaving).", LAYOUT)] = None,
    schedule: Annotated[str | None, _option("1f1b, interleaved, gpipe, zb1p or zbv.", LAYOUT)] = None,
    sp: Annotated[bool | None, _option("Sequence parallelism. Default: on with --tp.", LAYOUT, "--sp/--no-sp")] = None,
    zero: Annotated[int | None, _option("ZeRO stage 0 to 3; 3 is FSDP's full sharding.", LAYOUT)] = None,
    shard_size: Annotated[int | None, _option("Ranks per shard group (hybrid sharding).", LAYOUT)] = None,
    micro_batch: Annotated[int | None, _option("Sequences or images per GPU and micro-batch.", LAYOUT)] = None,
    recompute: Annotated[str | None, _option("Activation checkpointing: none, selective or full.", LAYOUT)] = None,
    do_search: Annotated[bool, _option("Search the best layout, whatever is given.", LAYOUT, "--search")] = False,
    keep: Annotated[int, _option("How many of the best layouts to show. Default: 5.", LAYOUT)] = 5,
    scaling: Annotated[
        bool, _option("Also show strong and weak scaling up to --gpus.", LAYOUT, "--scaling/--no-scaling")
    ] = False,
    tokens: Annotated[str | None, _option("Tokens to train on: 1e12, 300B, 15T.", RUN)] = None,
    epochs: Annotated[float | None, _option("Epochs to train for.", RUN)] = None,
    dataset_size: Annotated[float | None, _option("Samples of one epoch. Default: ImageNet's.", RUN)] = None,
    price: Annotated[float | None, _option("Price of a GPU-hour.", RUN)] = None,
    currency: Annotated[str, _option("Currency of the price. Default: EUR.", RUN)] = "EUR",
    grid: Annotated[str, _option("Country of the power grid, or its grams of CO2 per kWh. Default: fr.", RUN)] = "fr",
    pue: Annotated[float | None, _option("Power usage effectiveness of the site. Default: 1.2.", RUN)] = None,
    qos: Annotated[str | None, _option("QoS whose time limit cuts the run into jobs.", RUN)] = None,
    as_json: Annotated[bool, _option("Print the Plan record as JSON.", OUTPUT, "--json")] = False,
    save: Annotated[Path | None, _option("Write the Plan record to this file.", OUTPUT)] = None,
    html: Annotated[Path | None, _option("Write a self-contained HTML page to this file.", OUTPUT)] = None,
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
        write_user_text(save, plan.to_json())
    if html is not None:
        write_user_text(html, page(f"{plan.model} on {plan.gpus} GPUs", [plan_section(plan)]))


@plan_app.command("budget", help="Find the shortest and the cheapest run and the largest model within limits.")
def budget_command(
    model: Annotated[str, typer.Argument(help="The model to train, and the one whose proportions are scaled.")],
    cluster: Annotated[str | None, _option("A cluster of the catalogue, or your own .toml file.", MACHINE)] = None,
    gpu: Annotated[str | None, _option("A GPU, when there is no cluster.", MACHINE)] = None,
    gpus: Annotated[int, _option("GPUs at most. Default: 8.", MACHINE)] = 8,
    tokens: Annotated[str | None, _option("Tokens to train on. Default: 20 per parameter.", RUN)] = None,
    global_batch: Annotated[int | None, _option("Sequences per step. Default: what suits the GPUs.", RUN)] = None,
    seq_len: Annotated[int | None, _option("Tokens per sequence. Default: the model's own length.", RUN)] = None,
    price: Annotated[float | None, _option("Price of a GPU-hour.", RUN)] = None,
    days: Annotated[float | None, _option("At most so many days.", LIMITS)] = None,
    gpu_hours: Annotated[float | None, _option("At most so many GPU-hours.", LIMITS)] = None,
    energy_mwh: Annotated[float | None, _option("At most so much energy.", LIMITS)] = None,
    cost: Annotated[float | None, _option("At most this cost; needs --price.", LIMITS)] = None,
    as_json: Annotated[bool, _option("Print the PlanBudget record as JSON.", OUTPUT, "--json")] = False,
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


plan_app.command("scaling-law")(scaling_law_command)


@plan_app.command("models", help="List the built-in models.")
def models_command() -> None:
    print("\n".join([*built_in_names(), *known_image_models()]))


@plan_app.command("validate", help="Compare predictions with published tables (CSV).")
def validate_command(
    files: Annotated[
        list[Path], typer.Argument(help="Tables in the 42-column schema, or the simpler tables of image models.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the grades as JSON.")] = False,
    rows: Annotated[
        Path | None, typer.Option(help="Write what was predicted and measured for every row to this CSV.")
    ] = None,
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
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(columns)
    for grade in grades:
        for row in grade.grades:
            values = [getattr(row, name) for name in columns[1:-1]]
            writer.writerow([grade.file, *("" if v is None else v for v in values), "; ".join(row.notes)])
    write_user_text(path, table.getvalue())


def main() -> None:
    """For ``python -m vivace.cli.plan``: a user's error is a sentence and a hint, not a traceback."""
    try:
        plan_app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()

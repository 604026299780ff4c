"""``vivace recipe list|show|check``: the recipes that ship, and the published ones of MLPerf with their arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from vivace.cli.console import make_console
from vivace.recipes.checking import check as check_settings
from vivace.recipes.published import (
    Checked,
    PublishedTable,
    Verdict,
    check_table,
    find_table,
    published_tables,
    unknown,
)
from vivace.recipes.reading import as_toml, read_recipe, shipped_names

__all__ = ["recipe_app"]

recipe_app = typer.Typer(
    help="Recipes that run, and recipes that others published: list, show, check.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="NAME|FILE.toml", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Changes = Annotated[list[str] | None, typer.Option("--set", help="A setting: optim.lr=3e-4; repeatable.")]


@recipe_app.command("list")
def list_recipes(as_json: AsJson = False) -> None:
    """Recipes that `vivace train` runs, and the tables of MLPerf.

    Example:

        vivace recipe list
    """
    runnable = {name: read_recipe(name).about for name in shipped_names()}
    tables = {table.name: f"{table.task}, v{table.version}: {len(table.rows)} rows" for table in published_tables()}
    if as_json:
        typer.echo(json.dumps({"runnable": runnable, "published": tables}, indent=2))
        return
    for title, rows in (("run with `vivace train NAME`", runnable), ("published by MLPerf, to read and check", tables)):
        typer.echo(f"{title}\n")
        for name, about in rows.items():
            typer.echo(f"  {name:22} {about}")
        typer.echo("")


@recipe_app.command("show")
def show_recipe(
    name: Name,
    changes: Changes = None,
    everything: Annotated[bool, typer.Option("--all", help="Also what is at its default.")] = False,
    as_json: AsJson = False,
) -> None:
    """A recipe with everything that it extends, as TOML that can be saved and changed; or a table of MLPerf.

    Examples:

        vivace recipe show cifar10-speed > mine.toml

        vivace recipe show mlperf-resnet50
    """
    table = find_table(name)
    if table is None:
        _known(name)
        recipe = read_recipe(name, changes or ())
        typer.echo(recipe.to_json() if as_json else as_toml(recipe, everything), nl=False)
    elif as_json:
        typer.echo(table.model_dump_json(indent=2))
    else:
        _print_table(table)


@recipe_app.command("check")
def check_recipes(
    name: Annotated[str | None, typer.Argument(metavar="[NAME|FILE.toml]", show_default=False)] = None,
    changes: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Check a recipe's settings, or a table's arithmetic: epochs x samples / throughput against the published minutes.

    Examples:

        vivace recipe check                         all tables of MLPerf

        vivace recipe check mlperf-dlrm

        vivace recipe check my.toml --set batch=64
    """
    table = find_table(name) if name is not None else None
    if name is not None and table is None:
        _known(name)
        check_settings(read_recipe(name, changes or ()))
        typer.echo(json.dumps({"recipe": name, "valid": True}) if as_json else f"{name}: every setting is valid")
        return
    rows = [row for each in ([table] if table else published_tables()) for row in check_table(each)]
    if as_json:
        typer.echo(json.dumps([row.model_dump(mode="json") for row in rows], indent=2))
    else:
        _print_checked(rows)


def _known(name: str) -> None:
    if Path(name).suffix not in (".toml", ".json") and name not in shipped_names():
        raise unknown(name, shipped_names())


def _print_table(table: PublishedTable) -> None:
    console = make_console()
    title = f"{table.task} (MLPerf v{table.version}): {table.framework}; {table.optimizer}; {table.data}"
    console.print(title, highlight=False)
    if table.samples:
        console.print(f"{table.samples:,} samples per epoch", highlight=False)
    grid = Table("GPUs", "epochs", "warm-up", "batch", "per GPU", "rate", "decay", "samples/s", "minutes", box=None)
    for row in table.rows:
        seen = f"{row.epochs:g}" if row.epochs else f"{row.samples_in_all:.2g} samples" if row.samples_in_all else ""
        per_gpu = "" if row.batch_per_gpu is None else f"{row.batch_per_gpu:.3g}"
        rate = f"{row.samples_per_s:,.0f}" if row.samples_per_s else ""
        published = f"{row.published_min:g}" if row.published_min else ""
        grid.add_row(row.label or f"{row.gpus}", seen, row.warmup or "", f"{row.batch:,}", per_gpu, f"{row.lr:g}",
                     row.decay or "", rate, published)  # fmt: skip
    console.print(grid)
    for why in (table.why, *(row.why for row in table.rows)):
        if why:
            console.print(f"corrected or noted: {why}", highlight=False, style="dim")


def _print_checked(rows: list[Checked]) -> None:
    console = make_console()
    grid = Table("recipe", "GPUs", "minutes", "published", "ratio", "", box=None)
    for row in rows:
        ratio = row.minutes / row.published_min if row.minutes and row.published_min else None
        grid.add_row(row.table, f"{row.gpus}", _number(row.minutes), _number(row.published_min), _number(ratio),
                     _remark(row))  # fmt: skip
    console.print(grid)
    notes = dict.fromkeys(f"{row.table}: {row.why}" for row in rows if row.why)
    for note in notes:
        console.print(note, highlight=False, style="dim")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 1 else f"{value:.2f}"


def _remark(row: Checked) -> str:
    words = [row.verdict.value]
    if (
        row.printed_minutes is not None
        and row.minutes is not None
        and abs(row.printed_minutes / row.minutes - 1) > 0.01
    ):
        words.append(f"as printed: {_number(row.printed_minutes)} min")
    if row.verdict is Verdict.NO_RATE and row.implied_per_s:
        words.append(f"the published time needs {row.implied_per_s:,.0f} samples/s")
    return "; ".join(words)

"""``vivace lab list|show|run``: the course's practical work."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markdown import Markdown
from rich.markup import escape

from vivace.cli.console import make_console
from vivace.labs.catalogue import Lab, all_labs, find_lab
from vivace.labs.page import needed, page, without_local_links
from vivace.labs.running import missing_machines, run_lab
from vivace.measure.folder import DEFAULT_RUNS, new_run_folder
from vivace.report.fitting import FittingTable

__all__ = ["lab_app"]

lab_app = typer.Typer(
    help="The course's practical work: labs that run here, small or at full size.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]


@lab_app.command("list")
def list_labs(as_json: AsJson = False) -> None:
    """All labs by day, with what each needs and about how long its small form takes.

    Example:

        vivace lab list
    """
    if as_json:
        rows = [{"name": lab.name, **lab.header.model_dump(mode="json")} for lab in all_labs()]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = FittingTable(box=None, pad_edge=False, header_style="bold", caption_justify="left")
    for column in ("lab", "day", "what", "needs", "full size needs also", "small form"):
        table.add_column(column)
    for lab in all_labs():
        header = lab.header
        also = needed(header.full_needs) if header.full_needs else ""
        table.add_row(
            lab.name, str(header.day), escape(header.title), needed(header.needs), also, f"about {header.about_s} s"
        )
    table.caption = "vivace lab show NAME prints the page; vivace lab run NAME --small runs on two CPU cores."
    make_console(highlight=False).print(table)


@lab_app.command("show")
def show_lab(name: Name, as_json: AsJson = False) -> None:
    """The page of a lab: goal, what to predict, the code, what you should see and why.

    Example:

        vivace lab show zero
    """
    lab = find_lab(name)
    text = page(lab)
    if as_json:
        facts = {"name": lab.name, **lab.header.model_dump(mode="json"), "page": text}
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))
    elif sys.stdout.isatty():
        make_console(highlight=False).print(Markdown(without_local_links(text), hyperlinks=False))
    else:
        typer.echo(without_local_links(text), nl=False)


@lab_app.command("run")
def run(
    name: Name,
    small: Annotated[bool, typer.Option("--small", help="The form for two CPU cores, in at most a minute.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the table and the picture. Default: vivace-runs/lab-NAME-001."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a lab: print its table, write table (CSV) and picture (PNG), say what to compare with your prediction.

    Examples:

        vivace lab run zero --small

        vivace lab run precision --out lab1
    """
    lab = find_lab(name)
    console = make_console(stderr=True, highlight=False)
    console.print(f"[bold]{escape(lab.header.title)}[/]. Predict first: {escape(lab.header.predict.strip())}\n")
    if not small:
        _say_what_is_missing(lab)
    folder = out if out is not None else new_run_folder(DEFAULT_RUNS, f"lab-{lab.name}")
    done = run_lab(lab, folder, small, quiet=as_json)
    if as_json:
        typer.echo(done.model_dump_json(indent=2))
        return
    console.print(f"\n[bold]Compare with your prediction.[/] {escape(done.compare)}")
    written = [*(f"{table}.csv" for table in done.tables), *(path.name for path in done.pictures)]
    console.print(f"{', '.join(written)} in {escape(str(done.folder))} ({done.seconds:.0f} s)", soft_wrap=True)
    console.print(f"vivace lab show {lab.name} says what you should see, and why.", style="dim")


def _say_what_is_missing(lab: Lab) -> None:
    missing = missing_machines(lab)
    if missing:
        words = f"At full size this lab needs {needed(missing)}, which is not here. {lab.header.without.strip()}"
        make_console(stderr=True, highlight=False).print(f"[yellow]{escape(words)}[/]\n")

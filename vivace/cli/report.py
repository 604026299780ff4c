"""``vivace report RUN``: read the records of a run's folder, write them as one HTML page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from vivace.cli.console import make_console
from vivace.cli.runs import DEFAULT_RUNS, places
from vivace.errors import UserError
from vivace.files import write_text_atomically

__all__ = ["report", "write_report"]


def report(
    run: Annotated[
        Path | None,
        typer.Argument(help="A run's folder, or a Slurm job. Default: the latest run.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The HTML file. Default: report.html in the run's folder."),
    ] = None,
    runs: Annotated[
        Path, typer.Option(envvar="VIVACE_RUNS", help="Folder that holds the folders of all runs; the latest is used.")
    ] = DEFAULT_RUNS,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write one self-contained HTML page about a tune, a check, a search, a measurement or a job.

    The page needs no network and no JavaScript: mail it, print it, read it on a phone.

    Examples:

        vivace report

        vivace report vivace-runs/train-001 --open

        vivace report vivace-runs/train-001 -o train.html

        vivace report 1234          a job that was submitted from here: its pieces, planned and achieved
    """
    from vivace.report.run_folder import latest_run

    target = _job_page(run, output, runs) if run is not None and not run.exists() else None
    target = target or write_report(run if run is not None else latest_run(*places(runs)), output)
    make_console(stderr=True).print(f"report: {escape(str(target))}", highlight=False, soft_wrap=True)
    if open_it and not webbrowser.open(target.resolve().as_uri()):
        raise UserError("no browser could be started", hint=f"open {target} yourself")


def _job_page(job: Path, output: Path | None, runs: Path) -> Path | None:
    """None: nothing was submitted under that number or name."""
    from vivace.cli.status import job_report

    found = job_report(str(job), runs)
    if found is None:
        return None
    target = output if output is not None else found[1] / "job.html"
    _write(target, found[0])
    return target


def write_report(run: Path, output: Path | None = None) -> Path:
    """Make the page of a run's folder; where it was written."""
    from vivace.report.run_folder import read_run
    from vivace.report.run_page import run_page

    found = read_run(run)
    target = output if output is not None else found.folder / "report.html"
    _write(target, run_page(found))
    return target


def _write(target: Path, text: str) -> None:
    if target.is_dir():
        raise UserError(f"{target} is a folder", hint=f"-o {target / 'report.html'}")
    try:
        # A file name in a record may hold half a character (a lone surrogate), which UTF-8 cannot say.
        write_text_atomically(target, text.encode("utf-8", "replace").decode("utf-8"))
    except OSError as error:
        raise UserError(
            f"cannot write {target}: {error.strerror or error}", hint="choose another place with -o FILE"
        ) from None

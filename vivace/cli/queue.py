"""``vivace queue [NAME]`` and ``vivace cancel JOB``: parse, call ``vivace.launch.queue``, print."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from json import dumps
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vivace.cli.console import make_console
from vivace.cli.runs import DEFAULT_RUNS, Output, places
from vivace.launch.jobs import JobInfo, plain_reason
from vivace.launch.logs import commands_of
from vivace.launch.queue import cancel as cancel_jobs
from vivace.launch.queue import my_jobs
from vivace.launch.slurm import SlurmSilent
from vivace.launch.words import slurm_time
from vivace.report.fitting import FittingTable

__all__ = ["cancel", "queue"]

_COLOURS = {"RUNNING": "green", "PENDING": "yellow", "COMPLETING": "cyan"}


def queue(
    name: Annotated[
        str | None, typer.Argument(help="Only this job: a number, a name, or a pattern ('train*').")
    ] = None,
    follow: Annotated[
        bool | None, typer.Option(help="Update until no job is left. Default: yes on a terminal.", show_default=False)
    ] = None,
    every: Annotated[float, typer.Option(min=1, help="Seconds between updates.")] = 5.0,
    output: Output = DEFAULT_RUNS,
    json: Annotated[bool, typer.Option("--json", help="Print the jobs as JSON once.")] = False,
) -> None:
    """Show your waiting and running jobs, why they wait, and when they should start. Ctrl-C does not stop them.

    Examples:

        vivace queue                    all your jobs, until none is left

        vivace queue train --no-follow  jobs called train, once

        vivace queue --json             for scripts
    """
    console = make_console(highlight=False)
    if json:
        commands = _commands(output)
        rows = [{**job.as_table(), "command": commands.get(_number(job))} for job in my_jobs(name)]
        typer.echo(dumps(rows, indent=2))
        return
    if not (console.is_terminal if follow is None else follow):
        console.print(_view(my_jobs(name), _commands(output)))
        return
    try:
        with Live(console=console, auto_refresh=False) as live:
            for view in _views(name, output):
                live.update(view, refresh=True)
                time.sleep(every)
            live.update(Text("Done!"), refresh=True)
    except KeyboardInterrupt:
        console.print("the jobs keep running; vivace cancel JOB stops one", style="dim")


def _commands(output: Path) -> dict[str, str]:
    return {job: command for place in places(output) for job, command in commands_of(place).items()}


def _views(name: str | None, output: Path) -> Iterator[RenderableType]:
    """The jobs until none is left. While Slurm does not answer, the jobs as they were seen last."""
    last: RenderableType = Text("")
    while True:
        try:
            jobs = my_jobs(name)
        except SlurmSilent as silent:
            yield Group(last, Text(f"{silent.message}; trying again", style="yellow"))
            continue
        if not jobs:
            return
        last = _view(jobs, _commands(output))
        yield last


def cancel(
    jobs: Annotated[list[str], typer.Argument(help="Numbers, names or patterns of your jobs.")],
    json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Cancel waiting or running jobs.

    Examples:

        vivace cancel 1234            one job (1234_7: one task of an array)

        vivace cancel train 'sweep-*' by name, and by pattern
    """
    ids = cancel_jobs(jobs)
    typer.echo(dumps(ids) if json else f"cancelled: {', '.join(ids)}")


def _number(job: JobInfo) -> str:
    return job.job_id.partition("_")[0]


def _view(jobs: list[JobInfo], commands: Mapping[str, str]) -> Table | Text:
    if not jobs:
        return Text("you have no waiting or running jobs")
    known = any(_number(job) in commands for job in jobs)
    table = FittingTable(box=None, pad_edge=False, header_style="bold")
    for column in (
        "job",
        "name",
        "state",
        "ran",
        "limit",
        "GPUs",
        "nodes",
        "start",
        "where or why",
        *(["command"] if known else []),
    ):
        table.add_column(column, overflow="fold")
    for job in jobs:
        table.add_row(
            job.job_id,
            Text(job.name),
            Text(job.state.lower(), style=_COLOURS.get(job.state, "")),
            "" if job.run_s is None else slurm_time(job.run_s),
            "" if job.limit_s is None else slurm_time(job.limit_s),
            "" if job.gpus is None else str(job.gpus),
            str(job.nodes),
            (job.start or "").replace("T", " "),
            Text(job.node_list or plain_reason(job.reason)),
            *([Text(commands.get(_number(job), ""))] if known else []),
        )
    return table

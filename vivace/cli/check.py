"""``vivace check -- COMMAND``: parse, call ``vivace.tune.checking``, print."""

from __future__ import annotations

from dataclasses import replace
from json import dumps
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from vivace.cli.check_ranks import check_and_show
from vivace.cli.command import Command
from vivace.cli.console import make_console
from vivace.cli.copying import InCopy, KeepCopy, Link, copy_options
from vivace.cli.nothing import end_with_nothing
from vivace.cli.ranks import Mode, Ranks, mode_for
from vivace.cli.runs import DEFAULT_RUNS, Output
from vivace.cli.showing import embedded_example, print_record, shown
from vivace.errors import ExitCode, UserError
from vivace.measure.measuring import Measured, Request
from vivace.measure.peers import refuse_peers
from vivace.records.finding import Findings
from vivace.records.measurement import Measurement
from vivace.report.findings_view import findings_view
from vivace.report.ledger_view import lines_view
from vivace.report.terminal import measurement_view
from vivace.tune.checking import check as run_check

__all__ = ["check"]

_STEPS_OVER_RANKS = 20  # timed ones; enough for shares
_TOO_FEW = "not enough steps were measured for a verdict; let the command train for longer"


def check(
    command: Command = None,
    steps: Annotated[int, typer.Option(help="Optimizer steps to time.")] = 40,
    probes: Annotated[
        bool, typer.Option(help="Add short differential runs that separate the causes of waiting.")
    ] = True,
    fail_over: Annotated[
        float | None,
        typer.Option("--fail-over", help="For CI: exit with 1 if a larger speedup than this is likely left."),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Also list the lines of the script by the time they cost.")
    ] = False,
    ranks: Ranks = 1,
    with_: Mode = "",
    cluster: Annotated[
        str | None,
        typer.Option(help="With --ranks: predict for this machine of the catalogue (vivace hardware --clusters)."),
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Stop each run after this many seconds.")] = None,
    output: Output = DEFAULT_RUNS,
    name: Annotated[str | None, typer.Option(help="Name of the run. Default: the script's.")] = None,
    in_copy: InCopy = False,
    link: Link = None,
    keep_copy: KeepCopy = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the findings; the command's output goes to stderr.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show the command's output.")] = False,
) -> None:
    """Show what slows a training command down, ordered by likely speedup. The script is not edited.

    Each fix has a likely speedup with a range, and an upper bound. Without a command, vivace checks the example that
    ships with it. With --ranks the question is whether it would scale: the command runs as one process and split, and
    what is gathered, what runs whole, memory and exchanges are shown.

    Examples:

        vivace check -- python train.py -b 256

        vivace check --json --fail-over 1.2 -- torchrun --nproc-per-node 4 train.py

        vivace check --lines -- python train.py                                     what each line costs

        vivace check --ranks 16 --cluster jean-zay-h100 -- python train.py          would it scale?
    """
    if fail_over is not None and not fail_over >= 1:
        raise UserError(f"--fail-over must be 1 or more, not {fail_over:g}")
    refuse_peers("check")
    console = make_console(stderr=True)
    request = Request(
        command=tuple(command or embedded_example()),
        steps=steps,
        lines=True,
        timeout_s=timeout,
        output=output,
        name=name,
        copy=copy_options(in_copy, link, keep_copy),
    )
    mode = mode_for(ranks, with_, "check")
    if mode:
        if fail_over is not None:
            raise UserError("--fail-over is about fixes, and --ranks about scaling", hint="use one of the two")
        check_and_show(replace(request, steps=min(steps, _STEPS_OVER_RANKS)), mode[0], ranks, cluster, json, quiet)
    if cluster is not None:
        raise UserError("--cluster predicts for ranks", hint="add --ranks 16")
    with shown(console, json, quiet) as (sink, progress, _say):
        checked = run_check(request, probes, sink, progress)
    if checked.measured.measurement is None:
        end_with_nothing(checked.measured, console, json, quiet)
    if checked.findings is None:
        _end_too_early(checked.measured, console, json)
    if json:
        print_record(checked.findings)
    else:
        out = make_console()
        out.print(measurement_view(checked.measured.measurement, str(checked.folder)))
        out.print(findings_view(checked.findings, checked.measured.measurement), crop=False)
        if lines:
            _print_lines(out, checked.measured.measurement)
    if checked.interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if fail_over is not None and checked.findings.left > fail_over:
        text = f"[bold red]vivace:[/] {_left(checked.findings)}, more than {fail_over:g}×"
        console.print(text, highlight=False, soft_wrap=True)
        raise typer.Exit(ExitCode.NEGATIVE)
    if fail_over is not None and checked.measured.measurement.status != "complete":
        console.print(f"[bold red]vivace:[/] {_TOO_FEW}", highlight=False)
        raise typer.Exit(ExitCode.NOT_ENOUGH)
    raise typer.Exit(checked.measured.outcome.exit_code)


def _print_lines(out: Console, record: Measurement) -> None:
    if record.ledger is None:
        out.print("[yellow]no lines: the run ended before its stack was sampled[/]", highlight=False)
    else:
        out.print(lines_view(record.ledger))


def _end_too_early(measured: Measured, console: Console, json: bool) -> NoReturn:
    """There is a record, and no step in it was timed."""
    record = measured.measurement
    why = f"{_TOO_FEW} ({record.reason})" if record is not None and record.reason else _TOO_FEW
    if json:
        print(dumps({"status": "nothing", "reason": why, "hint": None, "folder": str(measured.folder)}))
    console.print(f"[bold yellow]vivace:[/] {escape(why)}", highlight=False)
    console.print(f"[dim]  its output is kept in {escape(str(measured.folder))}[/]", highlight=False, soft_wrap=True)
    raise typer.Exit(measured.outcome.exit_code or ExitCode.NOT_ENOUGH)


def _left(findings: Findings) -> str:
    text = f"a speedup of {findings.left:.2f}× is likely left"
    if findings.unexplained is None:
        return text
    return f"{text}, with {findings.unexplained.ms:.0f} of {findings.unexplained.step_ms:.0f} ms per step not explained"

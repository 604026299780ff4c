"""``vivace measure -- COMMAND``: parse, call ``vivace.measure``, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vivace.cli.command import Command
from vivace.cli.console import make_console
from vivace.cli.copying import InCopy, KeepCopy, Link, copy_options
from vivace.cli.nothing import end_with_nothing
from vivace.cli.ranks import Mode, Ranks, mode_for
from vivace.cli.runs import DEFAULT_RUNS, Output
from vivace.cli.showing import embedded_example, print_record, shown
from vivace.errors import UserError
from vivace.measure.measuring import Measured, Request
from vivace.measure.measuring import measure as run_measurement
from vivace.protocol.request import Entry
from vivace.records.measurement import Measurement
from vivace.report.terminal import measurement_view
from vivace.scale.launcher import over_ranks

__all__ = ["measure"]


def measure(
    command: Command = None,
    steps: Annotated[int, typer.Option(help="Optimizer steps to time.")] = 50,
    warmup: Annotated[
        int | None, typer.Option(help="Warm-up steps to leave out. Default: until step times are steady.")
    ] = None,
    ranks: Ranks = 1,
    with_: Mode = "",
    timeout: Annotated[float | None, typer.Option(help="Stop the command after this many seconds.")] = None,
    output: Output = DEFAULT_RUNS,
    name: Annotated[str | None, typer.Option(help="Name of the run. Default: the script's.")] = None,
    profile: Annotated[bool, typer.Option(help="Profile and sample a few steps after the timed ones.")] = True,
    flops: Annotated[bool, typer.Option(help="Count the FLOPs of one step for the MFU.")] = True,
    histograms: Annotated[
        bool,
        typer.Option("--histograms", help="Count the magnitudes of activations and gradients in three more steps."),
    ] = False,
    in_copy: InCopy = False,
    link: Link = None,
    keep_copy: KeepCopy = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the record; the command's output goes to stderr.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not show the command's output (it is in the logs).")
    ] = False,
) -> None:
    """Show where the time, memory and energy of a training command go. The script is not edited.

    The command runs unchanged for a warm-up, the timed steps and a short profiler window. Then vivace stops it. If
    it fails after it began to train, its exit code is kept. Without a command, vivace measures the example that ships
    with it.

    Examples:

        vivace measure -- python train.py -b 256

        vivace measure --steps 100 -- torchrun --nproc-per-node 4 train.py

        vivace measure --ranks 2 -- python train.py                  an unedited script, split over two GPUs

        vivace measure --histograms -- python train.py               would fp16, bf16 or fp8 lose gradients?

        vivace measure --json -- bash run.sh > measurement.json
    """
    if timeout is not None and not timeout > 0:  # written so that nan is refused too
        raise UserError(f"--timeout must be above 0 seconds, not {timeout:g}")
    mode = mode_for(ranks, with_, "measure")
    request = Request(
        command=tuple(command or embedded_example()),
        steps=steps,
        warmup_steps=warmup,
        profile=profile,
        lines=profile,
        histograms=histograms,
        flops=flops,
        timeout_s=timeout,
        output=output,
        name=name,
        copy=copy_options(in_copy, link, keep_copy),
        notices_files=True,
        practices=mode,
        entry=Entry.PRACTICES if mode else Entry.MEASURING,
        launcher=over_ranks(ranks) if mode else (),
    )
    console = make_console(stderr=True)
    if not command and not json:
        console.print("No command given: measuring the example that ships with vivace (a small image classifier).\n")
    measured = _run(request, console, json, quiet)
    if measured.message is not None:
        end_with_nothing(measured, console, json, quiet)
    if measured.measurement is not None:  # else another task of the same srun shows it
        _show(measured.measurement, measured.folder, json)
    raise typer.Exit(measured.outcome.exit_code)


def _run(request: Request, console: Console, json: bool, quiet: bool) -> Measured:
    with shown(console, json, quiet) as (sink, progress, _say):
        return run_measurement(request, sink, progress)


def _show(measurement: Measurement, folder: Path, json: bool) -> None:
    if json:
        print_record(measurement)
    else:
        make_console().print(measurement_view(measurement, str(folder)))

"""``vivace chaos --fault F -- COMMAND``: parse, call ``vivace.chaos``, print."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from vivace.chaos.running import ChaosRequest, run_chaos
from vivace.cli.command import Command
from vivace.cli.console import make_console
from vivace.cli.runs import DEFAULT_RUNS, Output
from vivace.cli.showing import print_record, shown
from vivace.errors import ExitCode, UserError
from vivace.protocol.chaos import Fault
from vivace.protocol.progress import SeenProgress
from vivace.report.chaos_view import chaos_view

__all__ = ["chaos"]

FaultOption = StrEnum("FaultOption", {fault.name: fault.value for fault in Fault})  # type: ignore[misc]


def chaos(
    command: Command = None,
    fault: Annotated[FaultOption | None, typer.Option(help="What to do to the job.")] = None,
    rank: Annotated[int, typer.Option(min=0, help="To which rank.")] = 0,
    step: Annotated[
        int | None, typer.Option(min=1, help="After so many optimizer steps. Default: a random one from 3 to 20.")
    ] = None,
    after: Annotated[
        float | None, typer.Option(help="kill, stop: after so many seconds instead, from outside; needs no torch.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="bit-rot: where the checkpoints are. disk-full: fill this (small) disk for real."),
    ] = None,
    delay: Annotated[float, typer.Option(help="slow: seconds of sleep before a step.")] = 0.5,
    slow_steps: Annotated[int, typer.Option(min=1, help="slow: for so many steps.")] = 10,
    restarts: Annotated[
        int | None,
        typer.Option(min=0, help="How often to start the job again. Default: 0 for slow, nan and disk-full, else 1."),
    ] = None,
    patience: Annotated[float, typer.Option(help="Seconds without a step after which a job counts as hung.")] = 120.0,
    timeout: Annotated[float | None, typer.Option(help="End each start of the job after this many seconds.")] = None,
    seed: Annotated[int | None, typer.Option(help="For the random step and the random bit.")] = None,
    output: Output = DEFAULT_RUNS,
    json: Annotated[bool, typer.Option("--json", help="Print the record; the job's output goes to stderr.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not show the job's output (it is in the logs).")
    ] = False,
) -> None:
    """Put a fault into a training job, and report who noticed, how it ended and how many steps were lost.

    The script is not edited. A job that ended is started again with the same command, as a queue would do.

    Examples:

        vivace chaos --fault kill --rank 1 --step 12 -- torchrun --nproc-per-node 2 train.py

        vivace chaos --fault nan -- python train.py

        vivace chaos --fault bit-rot --folder checkpoints -- vivace train gpt --layout dp2

        vivace chaos --fault stop --after 30 --patience 60 -- bash job.sh
    """
    if not command:
        raise UserError("no command to disturb", hint="vivace chaos --fault kill -- python train.py …")
    if fault is None:
        raise UserError("which fault?", hint=f"--fault {'|'.join(Fault)}")
    for name, value in (("--after", after), ("--delay", delay), ("--patience", patience), ("--timeout", timeout)):
        if value is not None and not value > 0:
            raise UserError(f"{name} must be above 0 seconds, not {value:g}")
    request = ChaosRequest(
        command=tuple(command),
        fault=Fault(fault.value),
        output=output,
        rank=rank,
        step=step,
        after_s=after,
        delay_s=delay,
        slow_steps=slow_steps,
        checkpoints=folder,
        restarts=restarts,
        patience_s=patience,
        timeout_s=timeout,
        seed=seed,
    )
    console = make_console(stderr=True)
    try:
        with shown(console, json, quiet) as (sink, progress, _say):
            record = run_chaos(request, sink, lambda made: progress(SeenProgress(stage="running", steps=made)))
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if json:
        print_record(record)
    else:
        make_console().print(chaos_view(record))
    raise typer.Exit(ExitCode.DONE if record.injected else ExitCode.NOTHING)

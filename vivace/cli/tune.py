"""``vivace tune -- COMMAND``: parse, call ``vivace.tune.tuning``, print."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from vivace.cli.command import Command
from vivace.cli.console import make_console
from vivace.cli.copying import InCopy, KeepCopy, Link, copy_options
from vivace.cli.ranks import Mode, Ranks, mode_for
from vivace.cli.report import write_report
from vivace.cli.resuming import refuse_beside_resume
from vivace.cli.runs import DEFAULT_RUNS, Output
from vivace.cli.showing import embedded_example, print_record, shown
from vivace.errors import ExitCode, UserError
from vivace.measure.peers import refuse_peers
from vivace.report.proof_view import proof_view
from vivace.tune.tuning import Interrupted, Options, Tuned, resume_options
from vivace.tune.tuning import tune as run_tune

__all__ = ["tune"]

_RISKS = ("exact", "rounding", "algorithmic")
_DEMO_BUDGET_MINUTES = 2.5
_IN_MINUTES = {"s": 1 / 60, "m": 1.0, "h": 60.0}


def minutes_of(text: str | float) -> float:
    """``20``, ``20m``, ``1200s`` and ``0.5h`` as minutes. A default comes as a number."""
    number, unit = (str(text)[:-1], str(text)[-1:]) if str(text)[-1:] in _IN_MINUTES else (str(text), "m")
    try:
        return float(number) * _IN_MINUTES[unit]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time: write minutes (20) or 90s, 20m, 1h") from None


def tune(
    context: typer.Context,
    command: Command = None,
    budget: Annotated[
        float | None,
        typer.Option(
            parser=minutes_of,
            metavar="MINUTES",
            help="Minutes for all trials, or 90s, 20m, 1h; compilation included. Default: 10.",
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Timed steps per trial. Default: about three seconds of steps.")] = 0,
    rounds: Annotated[int, typer.Option(help="Pairs of runs in the proof.")] = 3,
    harm_steps: Annotated[
        int | None,
        typer.Option(
            help="Check for harm over at least this many steps, with one more pair of runs. Default: as needed."
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Also use practices of this risk: `--allow algorithmic` (a different optimisation problem)."),
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue an interrupted tune: its folder.")] = None,
    ranks: Ranks = 1,
    with_: Mode = "",
    slurm: Annotated[
        str | None,
        typer.Option(help="Run each trial as a Slurm job with these srun options: '--gpus=1 --time=10 -A xyz'."),
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Stop each trial after this many seconds.")] = None,
    output: Output = DEFAULT_RUNS,
    name: Annotated[str | None, typer.Option(help="Name of the run. Default: the script's.")] = None,
    in_copy: InCopy = False,
    link: Link = None,
    keep_copy: KeepCopy = False,
    json: Annotated[bool, typer.Option("--json", help="Print only the proof on stdout.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the output of every trial.")] = False,
) -> None:
    """Try the fixes, keep those that pay, prove the gain and check for harm. The script is not edited.

    Each trial is a fresh process. With --ranks each is split over ranks, and compared with one process first. Changes
    of the optimisation problem are only proposed. Without a command, vivace tunes the example that ships with it.

    Examples:

        vivace tune -- python train.py -b 256

        vivace tune --budget 20 --allow algorithmic -- python train.py

        vivace tune --ranks 4 -- python train.py          split over 4 GPUs: what the ranks and the practices bring

        vivace tune --resume vivace-runs/train-001
    """
    refuse_peers("tune")
    if resume is not None:
        refuse_beside_resume(context)
        options = _options_of(resume, budget)
    else:
        options = _options(command, budget, steps, rounds, harm_steps, allow, timeout, slurm)
        mode = mode_for(ranks, with_, "tune")
        if mode and slurm is not None:
            raise UserError(
                "--ranks starts its ranks on this machine, and --slurm elsewhere", hint="use one of the two"
            )
        options = replace(
            options, copy=copy_options(in_copy, link, keep_copy), ranks=ranks, mode=mode[0] if mode else ""
        )
    console = make_console(stderr=True, highlight=False)
    if not command and resume is None:
        console.print("No command given: tuning the example that ships with vivace (a small image classifier).\n")
    try:
        with shown(console, json, quiet=not verbose) as (sink, progress, say):
            tuned = run_tune(options, output, name, resume, sink, progress, say)
    except Interrupted as interrupted:
        _tell_how_to_go_on(console, interrupted)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    page = _write_page(tuned.folder, console)
    _show(tuned, page, json)


def _options_of(resume: Path, budget: float | None) -> Options:
    """What the tune in that folder was asked, with another budget if one is given."""
    options = resume_options(resume)
    if budget is None:
        return options
    if 60 * budget < options.budget_s and (resume / "proof.json").is_file():
        hint = f"it had {options.budget_s / 60:g} minutes; use a larger --budget to try the rest"
        raise UserError(f"{resume} is finished: a smaller budget leaves nothing to do", hint=hint)
    return replace(options, budget_s=60 * budget)


def _options(
    command: list[str] | None, budget: float | None, steps: int, rounds: int, harm_steps: int | None,
    allow: list[str] | None, timeout: float | None, slurm: str | None,
) -> Options:  # fmt: skip
    for risk in allow or []:
        if risk not in _RISKS:
            raise UserError(f"--allow {risk}: there is no such risk", hint=f"one of {', '.join(_RISKS)}")
    minutes = budget if budget is not None else 10.0 if command else _DEMO_BUDGET_MINUTES
    return Options(
        command=tuple(command or embedded_example()),
        budget_s=60 * minutes,
        steps=steps,
        rounds=rounds,
        harm_steps=harm_steps,
        allow=tuple(dict.fromkeys(["exact", "rounding", *(allow or [])])),
        timeout_s=timeout,
        prefix=("srun", *_srun_options(slurm)) if slurm is not None else (),
    )


def _srun_options(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(
            f"--slurm {text!r} is not a list of options: {str(error).lower()}", hint="--slurm '--gpus=1 --time=10'"
        ) from None


def _tell_how_to_go_on(console: Console, interrupted: Interrupted) -> None:
    console.print("[bold yellow]vivace:[/] interrupted; finished trials are kept")
    if (best := interrupted.best) is not None:
        steps = f"{best.step_ms:.1f} ms per step instead of {best.unchanged_step_ms:.1f}"
        console.print(f"  best so far, not proved: {escape(','.join(best.words))} ({steps})", soft_wrap=True)
    again = f"vivace tune --resume {shlex.quote(str(interrupted.folder))}"
    console.print(f"[dim]  continue with: {escape(again)}[/]", soft_wrap=True)


def _write_page(folder: Path, console: Console) -> Path | None:
    """The report; the proof is on disk already, so a page that cannot be written ends nothing."""
    try:
        return write_report(folder)
    except UserError as error:
        console.print(f"[bold yellow]vivace:[/] {escape(error.message)}", soft_wrap=True)
        return None


def _show(tuned: Tuned, page: Path | None, json: bool) -> None:
    if json:
        print_record(tuned.proof)
        return
    out = make_console(highlight=False)
    out.print(proof_view(tuned.proof), crop=False)
    out.print(f"\n[dim]proof: {escape(str(tuned.folder / 'proof.json'))}[/]", soft_wrap=True)
    if page is not None:
        out.print(f"[dim]page:  {escape(str(page))}[/]", soft_wrap=True)

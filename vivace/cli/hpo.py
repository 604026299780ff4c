"""``vivace hpo --param lr=log(1e-4,1) --metric 'min val_loss' -- COMMAND``: parse, call ``vivace.hpo``, print."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape

from vivace.cli.command import Command
from vivace.cli.console import make_console
from vivace.cli.resuming import refuse_beside_resume
from vivace.cli.runs import DEFAULT_RUNS, Output
from vivace.cli.showing import print_record, shown
from vivace.errors import ExitCode, UserError
from vivace.hpo.asked import Asked, EngineName, PrunerName, SamplerName, TakenValue, read_asked, write_asked
from vivace.hpo.asking import Given, Here, ask, resumed, sought_rate
from vivace.hpo.storage import check_optuna
from vivace.measure.folder import name_of_command, new_run_folder
from vivace.measure.peers import refuse_peers
from vivace.records.hpo import Hpo
from vivace.report.hpo_view import ended_trials, hpo_live, hpo_view, trial_line
from vivace.tune.folder_lock import held

__all__ = ["hpo"]

_MAY_CHANGE = ("resume", "trials", "budget", "workers", "confirm_seeds", "slurm", "json")


def hpo(
    context: typer.Context,
    command: Command = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=RANGE, repeatable: log(1e-4,1), uniform(0,0.5), int(2,8), logint(1,512), choice(a,b); lr=find."
        ),
    ] = None,
    space: Annotated[Path | None, typer.Option(help="A TOML file with tables [param] and [default].")] = None,
    metric: Annotated[str | None, typer.Option(help="What to optimise: 'min val_loss', 'max accuracy'.")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Number of trials. Default: 50.")] = None,
    budget: Annotated[str | None, typer.Option(help="Stop after 2h (of the clock), 20gpuh or 500kJ.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Trials at a time. Default: 1.")] = None,
    engine: Annotated[
        EngineName, typer.Option(help="What runs the trials. ray: Ray Tune, with its schedulers (needs vivace[ray]).")
    ] = EngineName.OPTUNA,
    sampler: Annotated[SamplerName, typer.Option(help="How values are chosen.")] = SamplerName.TPE,
    pruner: Annotated[
        PrunerName, typer.Option(help="Which trials end early. auto: asha if the metric comes often.")
    ] = PrunerName.AUTO,
    default: Annotated[
        list[str] | None, typer.Option(help="Your own values, NAME=VALUE: tried first, and compared with in the end.")
    ] = None,
    confirm_seeds: Annotated[
        int | None, typer.Option(min=0, help="Run the best and your own values again with so many seeds. Default: 5.")
    ] = None,
    value: Annotated[TakenValue, typer.Option(help="Which reading of a trial counts.")] = TakenValue.LAST,
    trial_limit: Annotated[str | None, typer.Option(help="End a trial after 90s, 20min, 2h.")] = None,
    pattern: Annotated[str | None, typer.Option(help="Read the metric by a regular expression with one group.")] = None,
    metric_file: Annotated[
        list[str] | None,
        typer.Option(help="Read it from a CSV, JSON-lines or TensorBoard file: '{folder}/log.csv'."),
    ] = None,
    with_: Annotated[
        str, typer.Option("--with", help="Practices for every trial; `@vivace-runs/x` takes those that a tune kept.")
    ] = "",
    gpus_per_trial: Annotated[int | None, typer.Option(min=0, help="Default: 1 where there are GPUs.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the search; the command gets it as {seed}.")] = 0,
    storage: Annotated[
        str | None, typer.Option(help="A database: postgresql://user@host/db. Default: a journal in the folder.")
    ] = None,
    slurm: Annotated[
        str | None,
        typer.Option(help="Workers as tasks of a Slurm array, with options of vivace submit: '--gpus 1 --time 5h'."),
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue a study: its folder.")] = None,
    join: Annotated[Path | None, typer.Option(help="Work for a study that was started elsewhere: its folder.")] = None,
    output: Output = DEFAULT_RUNS,
    name: Annotated[str | None, typer.Option(help="Name of the study. Default: the script's.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only the record on stdout.")] = False,
) -> None:
    """Search hyper-parameters of an unedited command: one worker, many, or a Slurm array.

    The values stand in the command as {name}; {seed}, {trial} and {folder} are there too. The metric is read from what
    the command prints or writes. Killed workers lose nothing. In the end the best values run again over seeds against
    your own, so that the answer says how sure it is.

    Examples:

        vivace hpo --param 'lr=log(1e-4,1)' --metric 'min val_loss' --default lr=0.1 -- python train.py --lr {lr}

        vivace hpo --space space.toml --metric 'max accuracy' --trials 200 --workers 8 -- python train.py --lr {lr}

        vivace hpo … --budget 20gpuh --with @vivace-runs/train-001 -- torchrun --nproc-per-node 4 train.py --lr {lr}

        vivace hpo … --workers 16 --slurm '--gpus 4 --time 10h --account xyz' -- srun python train.py --lr {lr}

        vivace hpo --param 'optim.lr=log(1e-3,1)' --metric 'max val_accuracy' cifar10 --set data.train=train.parquet

        vivace hpo --param lr=find --metric 'min val_loss' -- python train.py --lr {lr}

        vivace hpo --resume vivace-runs/train-001 --trials 400
    """
    check_optuna()
    if join is not None:
        raise typer.Exit(_work(join))
    refuse_peers("hpo")
    given = Given(
        params=tuple(param or ()), space=space, metric=metric, trials=trials, budget=budget, workers=workers,
        engine=engine, sampler=sampler, pruner=pruner, defaults=tuple(default or ()), confirm_seeds=confirm_seeds,
        taken=value, trial_limit=trial_limit, pattern=pattern, metric_files=tuple(metric_file or ()), practices=with_,
        gpus_per_trial=gpus_per_trial, seed=seed, storage=storage, slurm=slurm,
    )  # fmt: skip
    here = Here.look()
    if resume is not None:
        refuse_beside_resume(context, _MAY_CHANGE)
        folder, asked = resume, resumed(read_asked(resume), given, here)
    else:
        if not command:
            raise UserError("no command to search for", hint="vivace hpo … -- python train.py --lr {lr}")
        folder, asked = _new_study(given, command, name or name_of_command(command), output, here, json)
    _lead(folder, asked, here, json)


def _new_study(given: Given, command: list[str], name: str, output: Path, here: Here, json: bool) -> tuple[Path, Asked]:
    rate = sought_rate(given)
    if rate is None:
        asked = ask(given, command, name, Path.cwd(), here)
        return new_run_folder(output, name), asked
    from vivace.hpo.found_rate import WHILE_SOUGHT, find_range

    asked = ask(given, command, name, Path.cwd(), here, {rate: WHILE_SOUGHT})
    folder = new_run_folder(output, name)
    console = make_console(stderr=True, highlight=False)
    with shown(console, json, quiet=True) as (sink, progress, _say):
        found = find_range(asked, rate, folder, sink, progress)
    console.print(f"[dim]{escape(rate)}: {found}, by a range test of the command[/]", soft_wrap=True)
    return folder, ask(given, command, name, Path.cwd(), here, {rate: found})


def _work(folder: Path) -> int:
    from vivace.hpo.worker import work

    return work(folder, lambda line: print(line, flush=True))


def _lead(folder: Path, asked: Asked, here: Here, json: bool) -> None:
    from vivace.hpo.leading import Interrupted, lead, lead_in_slurm

    console = make_console(stderr=True, highlight=False)
    with held(folder):
        write_asked(folder, asked)
        _tell_before(console, folder, asked, here)
        try:
            with _shown(console) as (show, say):
                if asked.slurm is not None:
                    record = lead_in_slurm(folder, asked, show, say)
                else:
                    record = lead(folder, asked, here.gpus, here.cores, show, say)
        except Interrupted as interrupted:
            _tell_how_to_go_on(console, folder, interrupted.record.ended)
            raise typer.Exit(ExitCode.INTERRUPTED) from None
    page = _write_page(folder, console)
    if json:
        print_record(record)
        return
    out = make_console(highlight=False)
    out.print(hpo_view(record), crop=False)
    out.print(f"\n[dim]trials: {escape(str(folder / 'trials.csv'))}[/]", soft_wrap=True)
    if page is not None:
        out.print(f"[dim]page:   {escape(str(page))}[/]", soft_wrap=True)


def _tell_before(console: Console, folder: Path, asked: Asked, here: Here) -> None:
    for line in here.notes_before(asked):
        console.print(f"[dim]{escape(line)}[/]", soft_wrap=True)
    console.print(f"[dim]study: {escape(str(folder))}[/]", soft_wrap=True)


@contextlib.contextmanager
def _shown(console: Console) -> Iterator[tuple[Callable[[Hpo], None], Callable[[str], None]]]:
    """A live table on a terminal; elsewhere a line for each trial that has ended."""

    def say(line: str) -> None:
        console.print(f"[yellow]{escape(line)}[/]", soft_wrap=True)

    if console.is_terminal and sys.stderr.isatty():
        with Live(console=console, transient=True, auto_refresh=False) as live:
            yield lambda record: live.update(hpo_live(record), refresh=True), say
        return
    told: set[int] = set()

    def show(record: Hpo) -> None:
        for one in ended_trials(record):
            if one.number not in told:
                told.add(one.number)
                console.print(escape(trial_line(record, one)), soft_wrap=True)

    yield show, say


def _tell_how_to_go_on(console: Console, folder: Path, why: str) -> None:
    console.print(f"[bold yellow]vivace:[/] {escape(why)}; finished trials are kept", soft_wrap=True)
    again = f"vivace hpo --resume {shlex.quote(str(folder))}"
    console.print(f"[dim]  continue with: {escape(again)}[/]", soft_wrap=True)


def _write_page(folder: Path, console: Console) -> Path | None:
    """The record is on disk already: a page that cannot be written ends nothing."""
    from vivace.cli.report import write_report

    try:
        return write_report(folder)
    except UserError as error:
        console.print(f"[bold yellow]vivace:[/] {escape(error.message)}", soft_wrap=True)
        return None

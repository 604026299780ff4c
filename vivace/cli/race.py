"""``vivace race --until TARGET -- COMMAND``: parse, call ``vivace.race.racing``, print."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from vivace.cli.command import Command
from vivace.cli.console import make_console
from vivace.cli.copying import InCopy, KeepCopy, Link, copy_options
from vivace.cli.resuming import refuse_beside_resume
from vivace.cli.runs import DEFAULT_RUNS, Output
from vivace.cli.showing import print_record, shown
from vivace.errors import ExitCode, UserError
from vivace.measure.folder import name_of_command, new_run_folder
from vivace.race.asked import AskedEntry, AskedRace, read_asked, write_asked
from vivace.race.racing import race as run_race
from vivace.race.watching import MetricSource
from vivace.records.race import Clock, RaceRun
from vivace.report.race_view import race_view, run_line
from vivace.tune.folder_lock import held
from vivace.tune.running import read_words

__all__ = ["race"]


def race(
    context: typer.Context,
    command: Command = None,
    until: Annotated[str | None, typer.Option(help="The target: 'accuracy >= 0.905', 'val_loss <= 3.28'.")] = None,
    with_: Annotated[
        list[str] | None, typer.Option("--with", help="Race COMMAND with these practices. Repeat it for more entries.")
    ] = None,
    against: Annotated[str, typer.Option(help="Practices of the baseline. Default: none, the command as it is.")] = "",
    entry: Annotated[
        list[str] | None, typer.Option(help="An entry as 'name: command'; the first one is the baseline.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of every entry, each with its own seed.")] = 5,
    limit: Annotated[
        str | None, typer.Option(help="End a run here: 20min, 30ep, 5000steps. Default: its own end.")
    ] = None,
    confirm: Annotated[int, typer.Option(help="Evaluations in a row that must reach the target.")] = 1,
    clock: Annotated[
        Clock, typer.Option(help="training: without start-up and compilation, as in MLPerf. wall: everything.")
    ] = Clock.TRAINING,
    pattern: Annotated[
        str | None, typer.Option(help="Read the metric by a regular expression with one group: 'acc: ([0-9.]+)'.")
    ] = None,
    metric_file: Annotated[
        list[str] | None,
        typer.Option(help="Read the metric from what the script writes: a CSV or JSON file, or TensorBoard's folder."),
    ] = None,
    seed_flag: Annotated[
        str | None, typer.Option(help="The option of the command that sets its seed: --seed, or seed=.")
    ] = None,
    all_seeds: Annotated[bool, typer.Option("--all-seeds", help="Do not stop when the answer is clear.")] = False,
    resume: Annotated[Path | None, typer.Option(help="Continue an interrupted race: its folder.")] = None,
    output: Output = DEFAULT_RUNS,
    name: Annotated[str | None, typer.Option(help="Name of the race. Default: the script's.")] = None,
    in_copy: InCopy = False,
    link: Link = None,
    keep_copy: KeepCopy = False,
    json: Annotated[bool, typer.Option("--json", help="Print only the record on stdout.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the output of every run.")] = False,
) -> None:
    """Which training reaches a target metric first? Runs of each entry over several seeds, in turn.

    The script is not edited. Its metric is read from what it prints or writes. Each run gets another seed: `{seed}` in
    the command, `--seed-flag`, or else the script's own seeds plus the number of the round. Runs that never reach the
    target count as such. The race ends early when the answer is clear.

    Examples:

        vivace race --until 'accuracy >= 0.905' --with bf16,channels_last -- python train.py

        vivace race --until 'val_loss <= 3.28' --limit 20min --seeds 3
        --entry 'baseline: python train.py' --entry 'big batch: python train.py -b 4096 --lr 3.2'

        vivace race --until '"* Acc@1" >= 75.9' --confirm 2 --with bf16 -- torchrun main.py --seed {seed}
    """
    console = make_console(stderr=True, highlight=False)
    if resume is not None:
        refuse_beside_resume(context)
        asked, folder = read_asked(resume), resume
    else:
        asked = AskedRace(
            until=_needed(until), entries=tuple(_entries(command, with_, against, entry)), seeds=seeds, limit=limit,
            clock=clock, confirm=confirm, stop_early=not all_seeds, seed_flag=seed_flag,
            source=MetricSource(pattern, tuple(metric_file or ())), copy=copy_options(in_copy, link, keep_copy),
        )  # fmt: skip
        assert asked.target
        folder = new_run_folder(output, name or f"race-{name_of_command(asked.entries[0].command)}")
    with held(folder):
        asked = write_asked(folder, asked)
        console.print(f"  [dim]folder: {escape(str(folder))}[/]", soft_wrap=True)
        with shown(console, json, quiet=not verbose) as (sink, _progress, say):

            def tell(run: RaceRun) -> None:
                say(f"  {escape(run_line(run))}")

            record = run_race(asked, folder, sink, tell)
    if json:
        print_record(record)
    else:
        make_console(highlight=False).print(race_view(record), crop=False)
    if record.interrupted:
        console.print("[bold yellow]vivace:[/] interrupted; finished runs are kept", soft_wrap=True)
        console.print(
            f"[dim]  continue with: vivace race --resume {escape(shlex.quote(str(folder)))}[/]", soft_wrap=True
        )
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not json:
        console.print(f"[dim]  page with the learning curves: vivace report {escape(shlex.quote(str(folder)))}[/]")


def _needed(until: str | None) -> str:
    if until is None:
        raise UserError("which metric is to reach which value?", hint="--until 'accuracy >= 0.905'")
    return until


def _entries(
    command: list[str] | None, with_: list[str] | None, against: str, entry: list[str] | None
) -> list[AskedEntry]:
    if entry:
        if with_ or against or command:
            raise UserError("--entry names whole commands; --with needs one COMMAND", hint="use one of the two")
        return [_entry(text) for text in entry]
    if not command:
        raise UserError(
            "no command to race", hint="vivace race --until 'accuracy >= 0.9' --with bf16 -- python train.py"
        )
    words = tuple(command)
    practices = [against, *(with_ or ())]
    return [AskedEntry(_name_of(text), words, read_words(text)) for text in practices]


def _name_of(practices: str) -> str:
    return practices.strip() or "as it is"


def _entry(text: str) -> AskedEntry:
    """
    >>> _entry("big batch: python train.py -b 4096").command
    ('python', 'train.py', '-b', '4096')
    """
    name, colon, command = text.partition(":")
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UserError(f"--entry {text!r}: {error}") from None
    if not colon or not name.strip() or not words:
        raise UserError(
            f"--entry {text!r} is not a name and a command", hint="--entry 'big batch: python train.py -b 4096'"
        )
    return AskedEntry(name.strip(), words)

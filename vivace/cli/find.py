"""``vivace find batch|loader|lr -- COMMAND``: parse, call ``vivace.tune.finders``, print."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import RenderableType
from rich.markup import escape

from vivace.cli.command import EXIT_CODES, TAKES_A_COMMAND, Command
from vivace.cli.console import make_console
from vivace.cli.copying import InCopy, KeepCopy, Link, copy_options
from vivace.cli.resuming import refuse_beside_resume
from vivace.cli.runs import DEFAULT_RUNS, Output
from vivace.cli.showing import embedded_example, print_record, shown
from vivace.errors import ExitCode, UserError
from vivace.measure.folder import name_of_command, new_run_folder
from vivace.protocol.rates import RateTest
from vivace.records.search import BatchSearch, LoaderSearch
from vivace.report.rate_view import rate_view
from vivace.report.search_view import batch_view, loader_view
from vivace.tune.finders.asked import Asked, read_asked, write_asked
from vivace.tune.finders.batch import find_batch
from vivace.tune.finders.loader import find_loader
from vivace.tune.finders.rate import AskedRate, find_rate
from vivace.tune.finders.room import parse_gib
from vivace.tune.folder_lock import held

__all__ = ["find_app"]

_DEMO_FLAG = "-b"
_FEWEST_RATES = 20

find_app = typer.Typer(
    help="Find a batch size, a number of loader workers or a learning rate. Every answer is a setting that was run.",
    no_args_is_help=True,
)

Budget = Annotated[float | None, typer.Option(help="Minutes for all runs. Default: 10.")]
Steps = Annotated[int, typer.Option(help="Timed steps per run.")]
Timeout = Annotated[float | None, typer.Option(help="Stop each run after this many seconds.")]
Resume = Annotated[Path | None, typer.Option(help="Continue an interrupted search: its folder.")]
Name = Annotated[str | None, typer.Option(help="Name of the search. Default: the script's.")]
Json = Annotated[bool, typer.Option("--json", help="Print only the record on stdout.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the output of every run.")]

Search = TypeVar("Search", BatchSearch, LoaderSearch)


@find_app.command("batch", context_settings=TAKES_A_COMMAND, epilog=EXIT_CODES)
def batch(
    context: typer.Context,
    command: Command = None,
    flag: Annotated[
        str | None,
        typer.Option(help="The option of your command that sets the batch size: -b, --batch-size, data.batch=."),
    ] = None,
    values: Annotated[
        str | None, typer.Option(help="Try only these sizes: 32,64,96. Default: double the script's own size.")
    ] = None,
    margin: Annotated[str, typer.Option(help="Memory to keep free.")] = "2GiB",
    budget: Budget = None,
    steps: Steps = 20,
    timeout: Timeout = None,
    resume: Resume = None,
    output: Output = DEFAULT_RUNS,
    name: Name = None,
    in_copy: InCopy = False,
    link: Link = None,
    keep_copy: KeepCopy = False,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Find the smallest batch size that is as fast as the best, and the largest that fits.

    Each size runs in a fresh process with the flag changed. Running out of memory is a result. vivace checks that the
    flag really changes the size. Without a command, it uses the example that ships with it.

    Examples:

        vivace find batch --flag -b -- python train.py -b 64

        vivace find batch --flag --batch-size --values 64,96,128 --margin 4GiB -- torchrun train.py

        vivace find batch --flag data.batch= -- python train.py data.batch=32

        vivace find batch --flag BATCH= -- env BATCH=32 python train.py
    """
    if resume is not None:
        asked = _asked_before("batch", context, resume, budget)
    else:
        asked = replace(
            _asked("batch", command, budget, steps, timeout),
            copy=copy_options(in_copy, link, keep_copy),
            flag=flag or _flag_of_the_example(command), values=_sizes(values), margin_gib=parse_gib(margin),
        )  # fmt: skip
    _search(find_batch, batch_view, asked, resume, output, name, json, verbose)


@find_app.command("loader", context_settings=TAKES_A_COMMAND, epilog=EXIT_CODES)
def loader(
    context: typer.Context,
    command: Command = None,
    budget: Budget = None,
    steps: Steps = 30,
    timeout: Timeout = None,
    resume: Resume = None,
    output: Output = DEFAULT_RUNS,
    name: Name = None,
    in_copy: InCopy = False,
    link: Link = None,
    keep_copy: KeepCopy = False,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Find how many loader workers (and how long a queue) the training needs, and how much memory they take.

    Stops after one run if the loader is not the limit. The script is not edited.

    Examples:

        vivace find loader -- python train.py

        vivace find loader --budget 5 -- torchrun --nproc-per-node 4 train.py
    """
    if resume is not None:
        asked = _asked_before("loader", context, resume, budget)
    else:
        asked = replace(_asked("loader", command, budget, steps, timeout), copy=copy_options(in_copy, link, keep_copy))
    _search(find_loader, loader_view, asked, resume, output, name, json, verbose)


@find_app.command("lr", context_settings=TAKES_A_COMMAND, epilog=EXIT_CODES)
def lr(
    command: Command = None,
    lowest: Annotated[float, typer.Option("--from", help="The first rate.")] = 1e-7,
    highest: Annotated[float, typer.Option("--to", help="The last rate.")] = 10.0,
    steps: Annotated[int, typer.Option(help="Rates to try, one optimizer step each.")] = 200,
    timeout: Timeout = None,
    output: Output = DEFAULT_RUNS,
    name: Name = None,
    in_copy: InCopy = False,
    link: Link = None,
    keep_copy: KeepCopy = False,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Find a learning rate with a range test: each optimizer step has a larger rate, and the loss after it is noted.

    The rates are set from inside the process; the script is not edited, and its own schedule is overwritten. The run
    ends after the last rate, or when the loss diverges. Every suggestion is a rate that was tried.

    Examples:

        vivace find lr -- python train.py

        vivace find lr --from 1e-6 --to 1 --steps 500 -- python train.py -b 256
    """
    if not 0 < lowest < highest < float("inf"):
        raise UserError(f"--from {lowest:g} --to {highest:g} is no range of rates", hint="--from 1e-7 --to 10")
    if steps < _FEWEST_RATES:
        raise UserError(f"--steps must be at least {_FEWEST_RATES}, not {steps}")
    asked = AskedRate(
        tuple(command or embedded_example()), RateTest(lowest, highest, steps), timeout,
        copy_options(in_copy, link, keep_copy),
    )  # fmt: skip
    folder = new_run_folder(output, name or name_of_command(asked.command))
    console = make_console(stderr=True, highlight=False)
    console.print(f"  [dim]folder: {escape(str(folder))}[/]", soft_wrap=True)
    with held(folder), shown(console, json, quiet=not verbose) as (sink, progress, _say):
        search = find_rate(asked, folder, sink, progress)
    if json:
        print_record(search)
    else:
        make_console(highlight=False).print(rate_view(search), crop=False)
    if search.interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not search.complete:
        console.print(f"[bold yellow]vivace:[/] {escape(search.ended)}; give --steps fewer", soft_wrap=True)
        raise typer.Exit(ExitCode.NOT_ENOUGH)


def _asked(what: str, command: list[str] | None, budget: float | None, steps: int, timeout: float | None) -> Asked:
    if steps < 1:
        raise UserError(f"--steps must be at least 1, not {steps}")
    budget_s = _seconds(budget) if budget is not None else 600.0
    return Asked(what, tuple(command or embedded_example()), budget_s, steps, timeout)


def _asked_before(what: str, context: typer.Context, resume: Path, budget: float | None) -> Asked:
    """What the search in that folder was asked, with another budget if one is given."""
    refuse_beside_resume(context)
    asked = read_asked(resume, what)
    return replace(asked, budget_s=_seconds(budget)) if budget is not None else asked


def _seconds(budget: float) -> float:
    if not budget > 0:
        raise UserError(f"--budget must be above 0 minutes, not {budget:g}")
    return 60 * budget


def _flag_of_the_example(command: list[str] | None) -> str:
    if command:
        raise UserError("which option sets the batch size?", hint="vivace find batch --flag -b -- python train.py …")
    return _DEMO_FLAG


def _sizes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UserError(f"--values {text!r} is not a list of sizes", hint="--values 32,64,96")
    return tuple(sorted({int(word) for word in words}))


def _search(
    find: Callable[..., Search], view: Callable[[Search], RenderableType], asked: Asked, resume: Path | None,
    output: Path, name: str | None, json: bool, verbose: bool,
) -> None:  # fmt: skip
    folder = resume or new_run_folder(output, name or name_of_command(asked.command))
    console = make_console(stderr=True, highlight=False)
    with held(folder):
        write_asked(folder, asked)  # with --resume too: another --budget holds from then on
        console.print(f"  [dim]folder: {escape(str(folder))}[/]", soft_wrap=True)
        with shown(console, json, quiet=not verbose) as (sink, progress, say):
            search = find(asked, folder, sink, progress, say)
    if json:
        print_record(search)
    else:
        make_console(highlight=False).print(view(search), crop=False)
    if not search.complete:
        again = f"vivace find {asked.what} --resume {shlex.quote(str(folder))}"
        again += "" if search.interrupted else f" --budget {2 * asked.budget_s / 60:g}"
        console.print(f"[bold yellow]vivace:[/] {escape(search.ended)}; finished runs are kept", soft_wrap=True)
        console.print(f"[dim]  continue with: {escape(again)}[/]", soft_wrap=True)
    if search.interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)

"""``vivace run --with a,b -- COMMAND``: parse, call ``vivace.tune.running``, print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from vivace.cli.command import Command
from vivace.cli.console import make_console
from vivace.cli.ranks import over_ranks_words
from vivace.cli.runs import DEFAULT_RUNS, Output
from vivace.errors import UserError
from vivace.practices.engine.registry import parse_words
from vivace.protocol.answers import PracticeAnswer
from vivace.protocol.rank import rank_and_world
from vivace.tune.running import MODES, read_words
from vivace.tune.running import run as run_training

if TYPE_CHECKING:
    from vivace.records.equality import Equality

__all__ = ["run"]


def run(
    command: Command = None,
    with_: Annotated[
        str,
        typer.Option("--with", help="Practices, separated by commas; `@vivace-runs/x` takes those that a tune kept."),
    ] = "",
    ranks: Annotated[
        int | None,
        typer.Option(min=1, help="Split the training over so many processes, one per GPU or group of cores."),
    ] = None,
    prove: Annotated[
        bool | None,
        typer.Option(
            "--prove/--no-prove",
            help="With --ranks: compare the first steps with one process. Default: the first time a command is split.",
        ),
    ] = None,
    scale_batch: Annotated[
        bool,
        typer.Option(
            "--scale-batch", help="With --ranks: each rank takes the script's batch, so the whole is N times larger."
        ),
    ] = False,
    lr_rule: Annotated[
        str | None,
        typer.Option(help="With --scale-batch: `linear` (SGD, with warm-up), `sqrt` (Adam) or `none`."),
    ] = None,
    lr_warmup: Annotated[
        int | None, typer.Option(min=0, help="Steps of warm-up of `--lr-rule linear`. Default: five epochs.")
    ] = None,
    local_bn: Annotated[
        bool, typer.Option("--local-bn", help="With --ranks: batch norm over each rank's part of the batch.")
    ] = False,
    strict: Annotated[bool, typer.Option(help="Stop if a practice does not apply.")] = False,
    output: Output = DEFAULT_RUNS,
    name: Annotated[str | None, typer.Option(help="Name of the run. Default: the script's.")] = None,
) -> None:
    """Run the full training with practices applied. The script is not edited; it keeps its output and exit code.

    Practices change the parts of the job as they are created. Names in state dicts stay the same, so checkpoints load
    with and without them. A practice that does not apply is left out, with the reason.

    With --ranks, the first run of a command compares its first steps with those of one process: gradients, updates and
    losses must be the same but for rounding. What both runs write goes nowhere. The answer is remembered.

    Examples:

        vivace run --with bf16,channels_last,compile -- python train.py

        vivace run --ranks 4 --with ddp,bf16 -- python train.py          on 4 GPUs, a script for one

        vivace run --ranks 4 --with zero1 --no-prove -- python train.py

        vivace run --ranks 4 --scale-batch --lr-rule linear -- python train.py          four times the batch

        vivace run --with @vivace-runs/train-001 -- torchrun --nproc-per-node 4 train.py
    """
    if not command:
        raise UserError("no command to run", hint="vivace run --with bf16 -- python train.py …")
    more = over_ranks_words(ranks, scale_batch, lr_rule, lr_warmup, local_bn)
    words = _with_a_mode(parse_words((*read_words(with_), *more)), ranks)
    if not words and "@" not in with_:
        raise UserError("no practice to apply", hint=_where_with_belongs(command))
    console = make_console(stderr=True, highlight=False)
    first = rank_and_world()[0] == 0
    if not words and first:
        text = f"the tune in {with_.strip().replace('@', '')} kept nothing: the command runs unchanged"
        console.print(f"[bold yellow]vivace:[/] {escape(text)}", soft_wrap=True)
    equality = _proved(command, words, ranks, output, name, prove, console)

    def tell(answers: dict[str, PracticeAnswer]) -> None:
        if not answers:
            console.print("[bold yellow]vivace:[/] no training step was seen: nothing was applied")
        for word, answer in answers.items():
            mark, says = ("[green]✓[/]", "") if answer.applied else ("[yellow]–[/]", "does not apply: ")
            console.print(f"{mark} vivace: [bold]{escape(word)}[/] {escape(f'{says}{answer}')}", soft_wrap=True)

    on_told = tell if first and words else lambda _state: None
    ran = run_training(command, words, strict, output, name, on_told, ranks, equality)
    if ran.missing and first:
        text = f"{', '.join(ran.missing)} does not apply (--strict)"
        console.print(f"[bold red]vivace:[/] {escape(text)}", soft_wrap=True)
    if ran.folder_gone and first:
        text = f"the command deleted {ran.folder}, so it is not known which practices were applied; use -o FOLDER"
        console.print(f"[bold yellow]vivace:[/] {escape(text)}", soft_wrap=True)
    if ran.unrecorded and first:
        text = f"the record of this run could not be written: {ran.unrecorded}"
        console.print(f"[bold yellow]vivace:[/] {escape(text)}", soft_wrap=True)
    raise typer.Exit(ran.exit_code)


def _with_a_mode(words: tuple[str, ...], ranks: int | None) -> tuple[str, ...]:
    """Several ranks need a way to split the work; the plain one unless another was named."""
    mode = next((word for word in words if word in MODES), None)
    in_job = rank_and_world()[1] > 1
    if ranks is not None and ranks > 1 and in_job:
        raise UserError("this job has started its ranks already", hint="leave out --ranks")
    if ranks is None and mode is not None and not in_job:
        raise UserError(f"{mode} splits the work over ranks, and there is one", hint="add --ranks 2")
    return words if ranks is None or mode is not None else parse_words(("ddp", *words))


def _proved(
    command: list[str], words: tuple[str, ...], ranks: int | None, output: Path, name: str | None, prove: bool | None,
    console: Console,
) -> Equality | None:  # fmt: skip
    """What is known, or found out now, of the split training beside that of one process."""
    if ranks is None or ranks < 2:
        if prove:
            raise UserError("--prove compares ranks with one process", hint="add --ranks 2")
        return None
    if prove is False:
        return None
    from vivace.cli.equality import proved

    mode = next(word for word in words if word in MODES)
    others = tuple(word for word in words if word != mode)
    return proved(command, mode, others, ranks, output, name, bool(prove), console)


def _where_with_belongs(command: list[str]) -> str:
    if any(word.split("=")[0] == "--with" for word in command):
        return "what follows the command's first word goes to the command: vivace run --with bf16 python train.py …"
    return "--with bf16,channels_last; `vivace practices` lists them"

"""``--ranks`` and ``--with`` of the commands that measure: how one training is split over processes."""

from __future__ import annotations

from typing import Annotated

import typer

from vivace.errors import UserError
from vivace.protocol.rank import rank_and_world
from vivace.tune.running import MODES, read_words

__all__ = ["Mode", "Ranks", "mode_for"]

Ranks = Annotated[
    int, typer.Option(min=1, help="Split the training over so many processes, one per GPU or group of cores.")
]
Mode = Annotated[str, typer.Option("--with", help=f"With --ranks: how to split it, {', '.join(sorted(MODES))}.")]


def mode_for(ranks: int, with_: str, command: str) -> tuple[str, ...]:
    """The practice that splits the work over ``ranks``, ddp if none is named; none for one rank."""
    words = read_words(with_)
    if any(word not in MODES for word in words) or len(words) > 1:
        raise UserError(
            f"--with {with_}: `vivace {command}` takes a way to split the work here",
            hint=f"one of {', '.join(sorted(MODES))}; `vivace tune` tries the other practices",
        )
    if ranks == 1:
        if words:
            raise UserError(f"{words[0]} splits the work over ranks, and there is one", hint="add --ranks 2")
        return ()
    if rank_and_world()[1] > 1:
        raise UserError("this job has started its ranks already", hint="leave out --ranks")
    return words or ("ddp",)

"""``--ranks`` and ``--with`` of the commands that measure: how one training is split over processes."""

from __future__ import annotations

from typing import Annotated

import typer

from vivace.errors import UserError
from vivace.protocol.rank import rank_and_world
from vivace.tune.running import MODES, read_words

__all__ = ["Mode", "Ranks", "mode_for", "over_ranks_words"]

_RULES = ("linear", "sqrt", "none")

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


def over_ranks_words(
    ranks: int | None, scale_batch: bool, lr_rule: str | None, lr_warmup: int | None, local_bn: bool
) -> tuple[str, ...]:
    """The words for what changes the training itself on ranks; the learning rate follows only a rule that was named."""
    if (scale_batch or local_bn) and (ranks is None or ranks < 2):
        name = "--scale-batch" if scale_batch else "--local-bn"
        raise UserError(f"{name} is about ranks, and there is one", hint="add --ranks 2")
    if not scale_batch and (lr_rule is not None or lr_warmup is not None):
        raise UserError("--lr-rule and --lr-warmup belong to --scale-batch", hint="add --scale-batch")
    if lr_warmup is not None and lr_rule != "linear":
        raise UserError("--lr-warmup belongs to --lr-rule linear")
    words = []
    if scale_batch:
        if lr_rule not in _RULES:
            raise UserError(
                f"{ranks} times the batch asks for another learning rate, or not: say which rule",
                hint="--lr-rule linear (SGD, with a warm-up; Goyal et al. 2017), sqrt (Adam and the like) or none",
            )
        words.append(f"scale_batch={ranks}:{lr_rule}" + (f":{lr_warmup}" if lr_warmup is not None else ""))
    if local_bn:
        words.append(f"local_bn={ranks}")
    return tuple(words)

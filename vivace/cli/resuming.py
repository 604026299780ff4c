"""What may stand beside ``--resume``: an option that would change nothing is refused, not passed over in silence."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from vivace.errors import UserError

__all__ = ["refuse_beside_resume"]

_MAY_CHANGE = ("resume", "budget", "json", "verbose")
_NOT_ASKED = ("resume", "json", "verbose")


def refuse_beside_resume(context: typer.Context, may_change: Sequence[str] = _MAY_CHANGE) -> None:
    """What was asked the first time holds: trials that are on disk would not fit to anything else."""
    allowed = " and ".join(f"--{name.replace('_', '-')}" for name in may_change if name not in _NOT_ASKED)
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in may_change or not _was_typed(context, name):
            continue
        if name == "command":
            raise UserError("--resume takes its command from the folder", hint="leave out everything after --")
        option = max(parameter.opts, key=len)
        raise UserError(
            f"{option} cannot be changed with --resume: the first options stay",
            hint=f"leave out {option}, or start again without --resume; only {allowed} may change",
        )


def _was_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"

"""The user's command on vivace's command line: everything from its first word on, with or without ``--`` before it."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
from collections.abc import Sequence
from typing import Annotated

import typer

from vivace.errors import UserError

__all__ = ["EXIT_CODES", "TAKES_A_COMMAND", "Command", "training_command"]

EXIT_CODES = (
    "Exit codes: 0 done; 1 the answer is no (check --fail-over); 2 wrong command line, nothing measured, or a practice "
    "does not apply (run --strict); 3 not enough steps; 124 timeout; 130 Ctrl-C; else the command's own."
)
"""Below the help of every command that starts one; docs/exit_codes.md has more."""

TAKES_A_COMMAND = {"allow_interspersed_args": False}
"""Of a sub-command: the first word that is no option of vivace begins the command, and later options are its own."""


def training_command(words: Sequence[str]) -> list[str]:
    """``words`` as they can be started: a Python script that cannot start itself gets the ``python`` of the PATH."""
    _refuse_to_be_hidden(words)
    if not words or not _is_a_script(words[0]) or _starts_itself(words[0]):
        return list(words)
    return ["python" if shutil.which("python") else "python3", *words]


def _refuse_to_be_hidden(words: Sequence[str]) -> None:
    """``env PYTHONPATH=. python train.py`` replaces the variable by which vivace comes into the process."""
    if not words or os.path.basename(words[0]) != "env":
        return
    given = list(itertools.takewhile(lambda word: word.startswith("-") or "=" in word, words[1:]))
    set_here = next((word for word in given if word.startswith("PYTHONPATH=")), None)
    if set_here is not None:
        rest = [word for word in words[1:] if word != set_here]
        shorter = shlex.join(rest if "=" not in rest[0] and not rest[0].startswith("-") else ["env", *rest])
        raise UserError(
            "`env PYTHONPATH=…` replaces the path by which vivace comes into the process",
            hint=f"set it before vivace: {shlex.join([set_here])} vivace … {shorter}",
        )


def _is_a_script(word: str) -> bool:
    return word.endswith(".py") and os.path.isfile(word)


def _starts_itself(word: str) -> bool:
    """As a shell would find it: by the PATH, or by a path to an executable file."""
    return shutil.which(word) is not None


Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND",
        help="The training command, as you would type it; `--` may stand before it. Put vivace's own options first.",
        show_default=False,
        callback=lambda words: training_command(words) if words else words,
    ),
]

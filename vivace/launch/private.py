"""Keeps secrets out of a job's script: they lie in a file beside it that only its user can read.

The script is readable by everyone and ``scontrol show`` hands it out. A value that looks like a secret
(``vivace.records.privacy``) goes to ``job.private.sh`` (mode 0600), which the script sources. While the job runs, its
arguments can still be seen in the process list of its nodes: a variable is safer than an argument.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.files import write_text_atomically
from vivace.records.privacy import is_secret_variable, safe_command

__all__ = ["Parted", "part", "private_path", "write_private"]

_ARRAY = '"${command[@]}"'


@dataclass(frozen=True)
class Parted:
    """What the script may show, and the text of the private file (None: there is nothing to hide)."""

    variables: Mapping[str, str]
    command: str
    private: str | None
    hidden: tuple[str, ...] = ()
    """What was hidden, in words without the secret itself."""


def part(variables: Mapping[str, str], words: Sequence[str]) -> Parted:
    """The command is hidden whole or not at all: half a command line in each file could not be read.

    >>> part({"LR": "1", "HF_TOKEN": "abc"}, ["python", "train.py"]).variables
    {'LR': '1'}
    """
    secret = {name: value for name, value in variables.items() if is_secret_variable(name, value)}
    hide_command = safe_command(words) != tuple(words)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in secret.items()]
    if hide_command:
        lines.append(f"command=({shlex.join(words)})")
    return Parted(
        variables={name: value for name, value in variables.items() if name not in secret},
        command=_ARRAY if hide_command else shlex.join(words),
        private="\n".join(["# Secrets of the job beside it, for its user alone.", *lines, ""]) if lines else None,
        hidden=(*secret, *(["the command"] if hide_command else [])),
    )


def private_path(script: str) -> Path:
    """
    >>> str(private_path("runs/train-001/job.sh"))
    'runs/train-001/job.private.sh'
    """
    return Path(script).with_suffix(".private.sh")


def write_private(script: str, text: str | None) -> None:
    """Nothing is written where there is nothing to hide."""
    if text is not None:
        write_text_atomically(private_path(script), text, mode=0o600)

"""A command with practices: ``vivace run --with NAMES -- COMMAND``, as it will stand in the job.

Called when a job is requested. Looks whether ``@FOLDER`` is there; starts and writes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from vivace.errors import UserError

__all__ = ["practised", "read_practices"]

_PYTHON = re.compile(r"python(\d+(\.\d+)*)?")


def read_practices(text: str) -> tuple[str, ...]:
    """The words of ``--with``, whose folders (``@vivace-runs/x``, what a tune found) get their whole path.

    Whether there are such practices is for ``vivace run`` to say.

    >>> read_practices("bf16, compile=reduce-overhead")
    ('bf16', 'compile=reduce-overhead')
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UserError("no practice to apply", hint="--with bf16,channels_last, or --with @vivace-runs/x")
    return tuple(_whole_path(word) if word.startswith("@") else word for word in words)


def _whole_path(word: str) -> str:
    path = Path(word[1:]).expanduser().absolute()
    if len(word) == 1 or not path.exists():
        raise UserError(f"--with {word}: there is no such folder", hint="--with @FOLDER names a folder of vivace tune")
    if "," in str(path):
        raise UserError(f"--with cannot name {path}: a comma separates practices", hint="rename the folder")
    return f"@{path}"


def practised(command: Sequence[str], practices: Sequence[str]) -> tuple[str, ...]:
    """The command; with practices under ``vivace run``, by the command's own Python where it names one.

    The job's modules, conda environment or container decide what ``python`` and ``vivace`` are, not this machine.

    >>> practised(["python", "train.py"], ["bf16"])
    ('python', '-m', 'vivace', 'run', '--with', 'bf16', '--', 'python', 'train.py')
    >>> practised(["torchrun", "train.py"], ["bf16"])[:2]
    ('vivace', 'run')
    """
    if not practices:
        return tuple(command)
    is_python = _PYTHON.fullmatch(Path(command[0]).name) is not None
    vivace = (command[0], "-m", "vivace") if is_python else ("vivace",)
    return (*vivace, "run", "--with", ",".join(practices), "--", *command)

"""A command with practices: ``vivace run --with NAMES -- COMMAND``, as it will stand in the job.

Called when a job is requested. Looks whether ``@FOLDER`` is there; starts and writes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from vivace.errors import UserError

__all__ = ["practised", "read_practices"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PYTHON = re.compile(r"python(\d+(\.\d+)*)?")


def read_practices(text: str) -> tuple[str, ...]:
    """The names in ``bf16,channels_last``. ``@runs/x`` means what ``tune`` kept there: the job needs its whole path.

    >>> read_practices("bf16, channels_last")
    ('bf16', 'channels_last')
    """
    names = [part.strip() for part in text.split(",")]
    return tuple(_folder(name) if name.startswith("@") else _checked(name) for name in names)


def _folder(name: str) -> str:
    folder = Path(name[1:]).expanduser().absolute()
    if len(name) == 1 or not folder.is_dir():
        raise UserError(f"--with {name}: there is no such folder", hint="--with @FOLDER names a folder of vivace tune")
    if "," in str(folder):
        raise UserError(f"--with cannot name {folder}: a comma separates practices", hint="rename the folder")
    return f"@{folder}"


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} cannot be a practice", hint="--with bf16,channels_last, or --with @runs/x")
    return name


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

"""Run folders: ``runs/<name>-001``, ``-002``, …; an earlier one is never overwritten. Or one for several processes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from vivace.errors import UserError

__all__ = ["name_of_command", "new_run_folder", "shared_run_folder"]

_LONGEST_NAME = 200  # bytes; file systems take 255, and the number comes after it


def name_of_command(command: Sequence[str]) -> str:
    """A short name for a command: its script, or its module.

    >>> name_of_command(["torchrun", "--nproc-per-node", "2", "src/train.py", "-b", "8"])
    'train'
    >>> name_of_command(["python", "-m", "my.trainer", "--data", "x"])
    'trainer'
    """
    for word in command:
        if word.endswith((".py", ".sh")):
            return _clean(Path(word).stem)
    if "-m" in command[:-1]:
        return _clean(command[list(command).index("-m") + 1].rsplit(".", 1)[-1])
    return _clean(Path(command[0]).name) if command else "run"


def _clean(text: str) -> str:
    """Letters and digits of any script stay; whatever could leave the folder or hide it does not."""
    whole = unicodedata.normalize("NFC", text)  # macOS keeps é as two characters, of which one is no letter
    name = re.sub(r"[^\w.-]+", "-", whole).strip("-.")
    return name.encode()[:_LONGEST_NAME].decode(errors="ignore") or "run"


def new_run_folder(base: Path, name: str) -> Path:
    """Make and return the next free ``base/name-NNN``; two processes that ask at once get two folders."""
    name = _clean(name)
    try:
        base.mkdir(parents=True, exist_ok=True)
        for number in range(1, 100_000):
            folder = base / f"{name}-{number:03d}"
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise _cannot_make(base, error) from None
    raise UserError(f"{base} holds 99,999 runs named {name}", hint="choose another name with --name")


def shared_run_folder(base: Path, name: str, mine: str) -> Path:
    """``base/name`` for all processes that ask for it; ``base/name-2``, … for one that left its file there."""
    name = _clean(name)
    folder, number = base / name, 1
    while (folder / mine).exists():
        number += 1
        folder = base / f"{name}-{number}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_make(base, error) from None
    return folder


def _cannot_make(base: Path, error: OSError) -> UserError:
    return UserError(
        f"cannot make a run folder under {base}: {error.strerror or error}",
        hint="choose another place with --output FOLDER",
    )

"""Run folders: ``vivace-runs/<name>-001``, ``-002``, …, never overwritten. Or one folder for several processes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from vivace.errors import UserError

__all__ = ["DEFAULT_RUNS", "EARLIER_RUNS", "name_of_command", "new_run_folder", "shared_run_folder"]

_ASSIGNMENT = re.compile(r"\w+=")
_SHELLS = ("bash", "sh", "dash", "zsh", "ksh")
DEFAULT_RUNS = Path("vivace-runs")
EARLIER_RUNS = Path("runs")
"""The default until 0.1.0. TensorBoard and many scripts write there too: records there are still found."""
_LONGEST_NAME = 200  # bytes; file systems take 255, and the number comes after it


def name_of_command(command: Sequence[str]) -> str:
    """A short name for a command: its script, or its module.

    >>> name_of_command(["torchrun", "--nproc-per-node", "2", "src/train.py", "-b", "8"])
    'train'
    >>> name_of_command(["python", "-m", "my.trainer", "--data", "x"])
    'trainer'
    >>> name_of_command(["bash", "-c", "WANDB_API_KEY=secret python src/train.py"])
    'train'
    """
    words = [word for word in _in_shells(command) if not _ASSIGNMENT.match(word)]  # a value may be a secret
    script = next((word for word in words if word.endswith((".py", ".sh"))), None)
    if script is not None:
        return _clean(Path(script).stem)
    if "-m" in words[:-1]:
        return _clean(words[words.index("-m") + 1].rsplit(".", 1)[-1])
    return _clean(Path(words[0]).name) if words else "run"


def _in_shells(command: Sequence[str]) -> Iterator[str]:
    """The words, also those inside the argument of ``bash -c "KEY=… python train.py"``."""
    in_shell = False
    for before, word in zip(["", *command], command, strict=False):
        in_shell = in_shell or Path(word).name in _SHELLS
        if in_shell and re.fullmatch(r"-[a-z]*c", before):
            yield from (part for part in re.split(r"[\s;&|()'\"]+", word) if part)
        else:
            yield word


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

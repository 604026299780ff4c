"""A flag of the user's command with another value: ``-b 64``, ``-b64``, ``--batch-size=64`` or ``data.batch=64``; or a
variable of its environment, set by ``env``: ``env BATCH=64 python train.py``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from vivace.errors import UserError

__all__ = ["check_flag", "value_of", "with_value"]


def check_flag(flag: str) -> None:
    """A name: with dashes as the command line has it, or without (``key=value``, as in Hydra)."""
    if not re.fullmatch(r"(-\w|--?[A-Za-z][\w.-]*|\+{0,2}[A-Za-z_][\w./@-]*)=?", flag):
        raise UserError(f"--flag {flag!r} is not a flag", hint="--flag -b, --flag --batch-size, or --flag data.batch=")


def value_of(command: Sequence[str], flag: str) -> int | None:
    """
    >>> value_of(["python", "train.py", "--batch-size=32"], "--batch-size")
    32
    """
    for n, written in _places(command, flag):
        text = command[n + 1] if written is None else command[n][len(written) :]
        return int(text) if text.isdecimal() else None
    return None


def with_value(command: Sequence[str], flag: str, value: int) -> tuple[str, ...]:
    """Replaced wherever it stands, added at the end where it does not.

    >>> with_value(["python", "train.py", "-b", "32", "-v"], "-b", 64)
    ('python', 'train.py', '-b', '64', '-v')
    >>> with_value(["python", "train.py"], "data.batch", 64)
    ('python', 'train.py', 'data.batch=64')
    >>> with_value(["env", "BATCH=8", "python", "train.py"], "BATCH=", 64)
    ('env', 'BATCH=64', 'python', 'train.py')
    """
    words = list(command)
    places = _places(command, flag)
    for n, written in places:
        if written is None:
            words[n + 1] = str(value)
        else:
            words[n] = f"{written}{value}"
    if not places:
        name = flag.rstrip("=")
        words += [name, str(value)] if flag.startswith("-") and not flag.endswith("=") else [f"{name}={value}"]
    return tuple(words)


def _places(command: Sequence[str], flag: str) -> list[tuple[int, str | None]]:
    """(position, what stands before the value in the same word; None when the value is the next word)."""
    name = flag.rstrip("=")
    found: list[tuple[int, str | None]] = [
        (n, f"{name}=") for n in _assignments(command) if command[n].startswith(f"{name}=")
    ]
    for n in range(_start_of_arguments(command), len(command)):
        word = command[n]
        if name.startswith("-"):
            if word == name and n + 1 < len(command):
                found.append((n, None))
            elif word.startswith(f"{name}="):
                found.append((n, f"{name}="))
            elif len(name) == 2 and word.startswith(name) and word[2:].isdecimal():  # -b64
                found.append((n, name))
        elif (stripped := word.lstrip("+")).startswith(f"{name.lstrip('+')}="):  # Hydra: key=, +key=, ++key=
            found.append((n, word[: len(word) - len(stripped) + len(name.lstrip("+")) + 1]))
    return found


def _assignments(command: Sequence[str]) -> list[int]:
    """Where ``env`` is told variables of the environment."""
    if not command or command[0].rpartition("/")[2] != "env":
        return []
    return list(itertools.takewhile(lambda n: "=" in command[n], range(1, len(command))))


def _start_of_arguments(command: Sequence[str]) -> int:
    """After the script: ``python -b`` and the launcher's own flags are not the script's."""
    for n, word in enumerate(command):
        if word.endswith((".py", ".sh")):
            return n + 1
        if word == "-m" and n + 1 < len(command):
            module = command[n + 1]
            if module not in ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"):
                return n + 2
    return 1

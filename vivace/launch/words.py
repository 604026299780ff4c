"""Times, names and quoting, as Slurm and the shell read them. Pure functions; called by all of ``vivace.launch``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vivace.errors import UserError

__all__ = ["checked_text", "output_pattern", "sbatch_word", "script_of", "seconds_of", "slurm_time"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_HARMLESS = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


def seconds_of(text: str) -> int:
    """A time as Slurm writes it, or with a unit.

    >>> seconds_of("5:00:00"), seconds_of("1-12"), seconds_of("90"), seconds_of("20h")
    (18000, 129600, 5400, 72000)
    """
    text = text.strip().lower()
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", text):
        return _positive(round(float(match[1]) * _UNITS[match[2]]), text)
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if match is None:
        raise UserError(
            f"{text!r} is not a time", hint="write hours:minutes:seconds (5:00:00), days-hours (1-12) or 20h"
        )
    days, parts = match[1], [int(part) for part in match.groups()[1:] if part is not None]
    if days is not None:  # D-H, D-H:M, D-H:M:S
        hours, minutes, seconds = [*parts, 0, 0][:3]
        return _positive(int(days) * 86400 + hours * 3600 + minutes * 60 + seconds, text)
    if len(parts) == 3:
        return _positive(parts[0] * 3600 + parts[1] * 60 + parts[2], text)
    minutes, seconds = [*parts, 0][:2]  # one number is minutes, two are minutes:seconds, as for sbatch
    return _positive(minutes * 60 + seconds, text)


def _positive(seconds: int, text: str) -> int:
    if seconds <= 0:
        raise UserError(f"a job of {text!r} would have no time", hint="write hours:minutes:seconds, as 5:00:00")
    return seconds


def script_of(command: Sequence[str]) -> str | None:
    """The script that a command names by its path; one that only a shell can name (``$WORK``, ``bash -c``) is none.

    >>> script_of(["torchrun", "src/train.py", "--config", "x.py"]), script_of(["python", "-m", "my.trainer"])
    ('src/train.py', None)
    """
    script = next((word for word in command if word.endswith((".py", ".sh"))), None)
    return None if script is None or re.search(r"^~|\$|\w=|[;&|]", script) else script


def slurm_time(seconds: float) -> str:
    """``hours:minutes:seconds``, rounded up.

    >>> slurm_time(18000), slurm_time(360000.2)
    ('05:00:00', '100:00:01')
    """
    whole = -int(-seconds // 1)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def checked_text(text: str, what: str) -> str:
    """``text``, or a ``UserError`` when it cannot stand on one line of a script."""
    if not text or any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise UserError(f"{what} must be one line of printable text, not {text!r}")
    return text


def sbatch_word(text: str) -> str:
    r"""``text`` for an ``#SBATCH`` line. sbatch is no shell: nothing is expanded, a space ends a word even escaped,
    ``#`` ends the line, and a backslash counts in both kinds of quotes.

    >>> print(sbatch_word('say "$(me)"; # 1'))
    "say \"$(me)\"; # 1"
    """
    if _HARMLESS.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def output_pattern(folder: str, file: str) -> str:
    """A log file's name for sbatch: ``%`` in the folder is text, in ``file`` it is Slurm's (``%j``)."""
    if "\\" in folder:
        raise UserError(f"Slurm cannot write logs to {folder}: it has a backslash", hint="choose --output FOLDER")
    return f"{folder.replace('%', '%%')}/{file}"

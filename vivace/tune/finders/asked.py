"""What a search was asked, kept in its folder so that an interrupted one can go on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from vivace.errors import UserError
from vivace.measure.copied_folder import CopyOptions
from vivace.tune.options_file import read_options, write_options
from vivace.tune.same_job import Job, refuse_another_job, this_job

__all__ = ["Asked", "read_asked", "write_asked"]

FILE = "find.json"


@dataclass(frozen=True)
class Asked:
    """``what``: 'batch' or 'loader'. ``flag``, ``values`` and ``margin_gib`` are for the batch."""

    what: str
    command: tuple[str, ...]
    budget_s: float = 600.0
    steps: int = 20
    timeout_s: float | None = None
    flag: str = ""
    values: tuple[int, ...] | None = None
    margin_gib: float = 2.0
    copy: CopyOptions | None = None
    job: Job | None = None
    """Set when the search begins."""


def write_asked(folder: Path, asked: Asked) -> None:
    asked = asked if asked.job is not None else replace(asked, job=this_job(asked.command))
    write_options(folder / FILE, asked)


def read_asked(folder: Path, what: str) -> Asked:
    nothing = UserError(
        f"{folder} contains no search to continue", hint=f"vivace find {what} --resume vivace-runs/NAME-001"
    )
    asked = read_options(folder / FILE, Asked, nothing)
    refuse_another_job(asked.job, asked.command, in_queue=False)
    if asked.what != what:
        raise UserError(
            f"{folder} holds a search for the {asked.what}", hint=f"vivace find {asked.what} --resume {folder}"
        )
    return asked

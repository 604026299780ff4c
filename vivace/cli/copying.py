"""``--in-copy`` and what goes with it, for every command that runs the user's training (measure, check, tune, find)."""

from __future__ import annotations

from typing import Annotated

import typer

from vivace.errors import UserError
from vivace.measure.copied_folder import LARGEST_GIB, CopyOptions

__all__ = ["InCopy", "KeepCopy", "Link", "copy_options"]

InCopy = Annotated[
    bool,
    typer.Option(
        "--in-copy",
        help="Run in a fresh copy of this folder, so that no checkpoint or log here is overwritten "
        f"(at most {LARGEST_GIB:g} GiB). Absolute paths are not redirected.",
    ),
]
Link = Annotated[
    list[str] | None,
    typer.Option(
        help="With `--in-copy`: link this file or folder instead of copying it; the command must only read it."
    ),
]
KeepCopy = Annotated[bool, typer.Option("--keep-copy", help="With `--in-copy`: keep the copies.")]


def copy_options(in_copy: bool, link: list[str] | None, keep_copy: bool) -> CopyOptions | None:
    if in_copy:
        return CopyOptions(tuple(link or ()), keep_copy)
    if link or keep_copy:
        option = "--link" if link else "--keep-copy"
        raise UserError(f"{option} needs --in-copy", hint=f"--in-copy {option}")
    return None

"""What an option of ``vivace plan`` may be: a number below its least value is refused by name.

Pure; touches nothing. Called by the CLI and ``answering``.
"""

from __future__ import annotations

from vivace.errors import UserError

__all__ = ["at_least", "more_than_zero"]


def at_least(option: str, value: float | None, least: int) -> None:
    """``--pue 0`` is a mistake, not a missing value. None is: the option was not given."""
    if value is not None and not value >= least:  # also what is not a number
        raise UserError(f"{option} is {value:g}; it must be at least {least}", hint=f"use {option} {least} or more")


def more_than_zero(option: str, value: float | None) -> None:
    if value is not None and not value > 0:
        raise UserError(f"{option} is {value:g}; it must be more than 0", hint=f"use {option} 1")

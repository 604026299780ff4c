"""The one kind of error that a user is meant to see: a sentence, and a hint about what to change.

Raised everywhere, printed (without a traceback) by ``vivace.cli.app``.
"""

from __future__ import annotations

__all__ = ["UserError"]


class UserError(Exception):
    """Something the user can mend. ``hint`` says how, with the exact flag or value where there is one."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

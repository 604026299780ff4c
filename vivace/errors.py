"""The one kind of error that a user is meant to see (a sentence and a hint), and the exit codes of every command.

Errors are raised everywhere, and printed (without a traceback) by ``vivace.cli.app``.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode", "UserError"]


class ExitCode(IntEnum):
    """How a command ends, if it is not the exit code of the user's own command (docs/exit_codes.md)."""

    DONE = 0
    NEGATIVE = 1
    """The answer is no, where the user asked for one (``check --fail-over``)."""
    NOTHING = 2
    """A wrong command line, or nothing could be measured or applied."""
    NOT_ENOUGH = 3
    """Too few steps for an answer."""
    TIMEOUT = 124
    """As timeout(1) ends."""
    INTERRUPTED = 130
    """As a shell reports Ctrl-C."""


class UserError(Exception):
    """Something the user can mend. ``hint`` says how, with the exact flag or value where there is one."""

    def __init__(self, message: str, hint: str | None = None, exit_code: ExitCode = ExitCode.NOTHING) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

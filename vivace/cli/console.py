"""Where our words go: a terminal has a width; a pipe or a file has none, and nothing is wrapped there."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console

__all__ = ["UNLIMITED", "make_console"]

UNLIMITED = 10_000  # columns; rich must be given some width, and would take 80 where there is no terminal


def make_console(stderr: bool = False, **options: Any) -> Console:
    """A console on stdout or stderr. Paths and commands that are piped stay whole, and can be copied and searched."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else UNLIMITED, **options)

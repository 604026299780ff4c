"""A full disk or a file server that is away stops nobody for good: the study's storage is asked again, for a while."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from vivace.errors import UserError

__all__ = ["PATIENCE_S", "patiently"]

PATIENCE_S = 600.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EAGAIN, errno.ENFILE})

P = ParamSpec("P")
T = TypeVar("T")


def patiently(do: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """``do``, and again after a pause while there is no room; a ``UserError`` after ``PATIENCE_S``."""
    began, pause_s = time.monotonic(), _FIRST_PAUSE_S
    while True:
        try:
            return do(*arguments, **named)
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            why = f"{error.strerror} ({error.filename or 'the study'})"
            if time.monotonic() - began > PATIENCE_S:
                raise UserError(f"the study cannot be written: {why}", hint="make room, then --resume") from None
            print(f"vivace: {why}; the study waits for room", file=sys.stderr, flush=True)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

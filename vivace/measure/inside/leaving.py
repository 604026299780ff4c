"""How a script ends: why it ended by itself, and how we end it once everything was seen."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import re
import sys
from typing import Any

import torch

from vivace.protocol.ending import ENDED_BY_ITSELF, Ended, Ending

__all__ = ["Exit", "end_quickly", "why_it_ended"]

_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory", re.IGNORECASE)
_TRIES = 3  # a script may catch our SystemExit and go on

_left_by_us: list[int] = []  # processes whose script we ended, alone and with its record written


class Exit:
    """Ends the script from its training thread, so that its clean-up runs. Caught three times: ends it for good."""

    def __init__(self) -> None:
        self.tried = 0

    def leave(self, alone: bool) -> None:
        """``alone``: ranks may still be talking to each other, and must take their time."""
        self.tried += 1
        if alone:
            _left_by_us.append(os.getpid())
        if self.tried > _TRIES:
            atexit._run_exitfuncs()  # its own clean-up, and what it has buffered
            _flush_files()
            os._exit(0)
        raise SystemExit(0)


def end_quickly() -> None:
    """After the script's own clean-up and exit handlers: what Python takes apart after them (workers' queues, gigabytes
    of shared and pinned memory, the CUDA context) can take many seconds, and the next trial waits for it."""
    if os.getpid() not in _left_by_us or _uncaught() is not None:
        return
    _flush_files()
    os._exit(0)


def why_it_ended() -> Ended:
    """The uncaught exception, if one ended the process; its traceback is in the script's own output."""
    error = _uncaught()
    if error is None:
        return ENDED_BY_ITSELF
    if isinstance(error, KeyboardInterrupt):
        return Ended(Ending.INTERRUPTED, "interrupted (Ctrl-C)")
    text = (str(error).splitlines() or [""])[0][:300]
    if isinstance(error, torch.OutOfMemoryError) or _OUT_OF_MEMORY.search(text):
        return Ended(Ending.OUT_OF_MEMORY, f"out of memory: {text}")
    return Ended(Ending.CRASHED, f"the script crashed: {type(error).__name__}: {text}")


def _uncaught() -> Any:
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def _flush_files() -> None:
    for file in (sys.stdout, sys.stderr, *_files_being_written()):
        with contextlib.suppress(Exception):
            file.flush()


def _files_being_written() -> list[Any]:
    """Files that the script never closes: Python would write their last lines when it takes them apart."""
    files = gc.get_objects()
    texts = [file for file in files if issubclass(type(file), io.TextIOWrapper)]
    return texts + [file for file in files if issubclass(type(file), (io.BufferedWriter, io.BufferedRandom))]

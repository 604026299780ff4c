"""The last moments of a rank: no late warning kills it, and its process groups end before Python does.

Importing this module registers two exit handlers. They do something only in processes that ``guard`` has noted here.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import time
from typing import Any

__all__ = ["WARNINGS", "agreeing", "finished", "initialized_distributed", "leaving", "listening"]

WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
_LET_GO_S = 0.2  # for a thread that a busy machine has put off

agreeing: set[int] = set()  # processes that have a gloo group of ours
finished: set[int] = set()  # processes of Slurm jobs that have closed their guard
leaving: set[int] = set()  # processes that end because all ranks agreed to
listening: set[int] = set()  # processes whose handlers are ours


def initialized_distributed() -> Any:
    """torch.distributed when the script uses it; torch is not imported for the sake of this question."""
    dist = getattr(sys.modules.get("torch"), "distributed", None)
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def _ignore_late_warnings() -> None:
    """Python gives its handlers back to their default action when it ends. For SIGUSR1 that is death: a warning that
    came while a finished training exited made it look interrupted, and its last piece was trained again."""
    if os.getpid() in listening:
        for number in WARNINGS:
            signal.signal(number, signal.SIG_IGN)
    if os.getpid() in finished and signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _end_process_groups() -> None:
    """Before Python takes a rank apart: a thread of gloo's that lets go of the last all-reduce only then needs Python's
    lock and aborts the process (pytorch issue 190489), and an exit code of 134 asks nobody to start the job again; a
    training that is done would count as failed. Registered when this module is imported: it runs after the script's
    ``finally`` blocks, which may end the groups themselves, and after most of its exit handlers."""
    dist = initialized_distributed()
    if os.getpid() in leaving and dist is not None:
        with contextlib.suppress(Exception):
            dist.destroy_process_group()
    if os.getpid() in agreeing:
        time.sleep(_LET_GO_S)


atexit.register(_end_process_groups)
atexit.register(_ignore_late_warnings)  # before the other one: handlers run last in, first out

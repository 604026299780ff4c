"""Ends a command with everything it started: politely, then for good.

``torchrun`` and ``srun`` pass a signal on to their ranks and wait for them, so they are asked first; what is left after
that is ended one by one. Called by ``watching``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

import psutil

__all__ = ["end_everything"]

POLITE_S = 10.0
_TERMINATE_S = 3.0
_POLL_S = 0.05


def end_everything(process: subprocess.Popen[bytes], first: signal.Signals, polite_s: float = POLITE_S) -> None:
    """``process`` leads a group of its own; ``first`` is what the group is sent. Returns when nothing of it runs."""
    members = _members(process)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, first)
    if _wait(process, members, polite_s):
        return
    members = _members(process) | members  # what it started meanwhile
    for member in members:
        with contextlib.suppress(psutil.Error):
            member.terminate()
    if not _wait(process, members, _TERMINATE_S):
        for member in _members(process) | members:
            with contextlib.suppress(psutil.Error):
                member.kill()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _members(process: subprocess.Popen[bytes]) -> set[psutil.Process]:
    """psutil tells a process from a later one with the same number."""
    try:
        leader = psutil.Process(process.pid)
        return {leader, *leader.children(recursive=True)}
    except psutil.Error:
        return set()


def _wait(process: subprocess.Popen[bytes], members: set[psutil.Process], seconds: float) -> bool:
    """Whether all of them end in time."""
    until = time.monotonic() + seconds
    while True:
        leader_gone = process.poll() is not None  # ours to reap: psutil would take its exit code away
        if leader_gone and not any(_runs(member) for member in members if member.pid != process.pid):
            return True
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_S)


def _runs(member: psutil.Process) -> bool:
    try:
        return bool(member.is_running() and member.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False

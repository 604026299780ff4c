"""Waiting for a condition, longer where the machine is busy. Giving up is the observer's failure, never vivace's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

__all__ = ["GaveUp", "busyness", "wait"]

PATIENCE_S = 240.0  # on a free machine
LOOK_EVERY_S = 0.7  # looking costs, too: a process of Slurm's each time


class GaveUp(Exception):
    """What was waited for did not come: nothing can be said about it."""


def busyness() -> float:
    """How many processes want each core; 1 where none has to wait."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def wait(what: str, happened: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """A second on a machine with three processes a core uses up a third of a second of patience."""
    left_s, looked = patience_s, time.monotonic()
    while not happened():
        time.sleep(LOOK_EVERY_S)
        now = time.monotonic()
        left_s -= (now - looked) / busyness()
        looked = now
        if left_s <= 0:
            raise GaveUp(f"gave up waiting for: {what}")

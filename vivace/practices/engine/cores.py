"""The cores that this process may use: a container or a Slurm job may give it a few of the machine's only."""

from __future__ import annotations

import os

__all__ = ["usable_cores"]


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

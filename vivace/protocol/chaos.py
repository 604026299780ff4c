"""What ``vivace chaos`` asks of every process of a job, and what the processes tell it: a line a step, in files.

In a variable of its own, beside the one for measuring and practices: the job may be a ``vivace run`` or a ``vivace
train``, which set that one themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from vivace.protocol.rank import rank_and_world
from vivace.protocol.text_enum import TextEnum

__all__ = [
    "GO",
    "REPORTS",
    "STRUCK",
    "VARIABLE",
    "ChaosOrder",
    "ChaosReport",
    "Fault",
    "Told",
    "open_really",
    "tell",
    "tell_resumed",
]

open_really = os.open
"""As it was before ``vivace run --ranks`` keeps the files of all ranks but the first to themselves."""
VARIABLE = "VIVACE_CHAOS"
REPORTS = "chaos-*.jsonl"
GO = "go"
STRUCK = "struck"
"""A file that says that the fault has come: ranks that torchrun starts again are spared."""


class Fault(TextEnum):
    KILL = "kill"
    """SIGKILL, to one rank."""
    STOP = "stop"
    """SIGSTOP: it is there, and does nothing."""
    HANG = "hang"
    """It waits for ever in Python, while its threads live on."""
    WORKER = "worker"
    """SIGKILL, to a worker of one rank's DataLoader."""
    SLOW = "slow"
    """It sleeps before each step, for some steps."""
    NAN = "nan"
    """The gradients of one step are not numbers."""
    DISK_FULL = "disk-full"
    BIT_ROT = "bit-rot"
    """Killed; then one bit of the newest checkpoint is flipped, and the job is started again."""


class Told(TextEnum):
    STEP = "step"
    READY = "ready"
    """The fault is about to come: it waits until ``vivace chaos`` has read what the job printed so far (``GO``)."""
    FAULT = "fault"
    RESUMED = "resumed"
    """vivace.checkpoint has loaded a checkpoint: ``step`` steps were done."""


@dataclass(frozen=True)
class ChaosOrder:
    """``fault`` None: count steps only. ``step``: after so many steps of the process."""

    folder: str
    fault: Fault | None = None
    rank: int = 0
    step: int = 1
    delay_s: float = 0.5
    slow_steps: int = 10
    fill: str | None = None
    """For a full disk: fill the file system of this folder; None: no file of the process can grow."""

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> ChaosOrder:
        fields = json.loads(text)
        fault = fields["fault"]
        return cls(**{**fields, "fault": None if fault is None else Fault(fault)})


@dataclass(frozen=True)
class ChaosReport:
    """One line. Times are those of ``time.time``; ``arrived_at``: when, in this step, its backward began or it
    first met the others (a collective)."""

    told: Told
    rank: int
    pid: int
    step: int
    at: float
    arrived_at: float | None = None

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> ChaosReport:
        """Raises ``ValueError`` for anything that ``to_text`` does not write."""
        try:
            fields = json.loads(text)
            return cls(**{**fields, "told": Told(fields["told"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a report: {error}") from None


def tell(folder: str, told: Told, step: int, arrived_at: float | None = None) -> None:
    """Append a line to this process's file. What cannot be written is not said: the job comes first."""
    rank = rank_and_world()[0]
    report = ChaosReport(told, rank, os.getpid(), step, time.time(), arrived_at)
    path = os.path.join(folder, REPORTS.replace("*", f"{rank}-{os.getpid()}"))
    with contextlib.suppress(OSError):
        handle = open_really(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, f"{report.to_text()}\n".encode())
        finally:
            os.close(handle)


def tell_resumed(step: int, environment: Mapping[str, str] = os.environ) -> None:
    """Called by vivace.checkpoint after every load; outside of ``vivace chaos`` it does nothing."""
    text = environment.get(VARIABLE)
    if text:
        tell(ChaosOrder.from_text(text).folder, Told.RESUMED, step)

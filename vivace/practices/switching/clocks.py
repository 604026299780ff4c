"""What steps are timed with: the host's clock, or marks on the GPU's own timeline.

A host that runs ahead of its GPU says nothing about the GPU's time, and waiting for the GPU at each end of a window
would take away the overlap that the script has. Events are recorded without waiting, and read when figures are looked
at, outside of what is timed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Protocol

import torch

__all__ = ["Clock", "EventClock", "HostClock", "clock_for"]


class Clock(Protocol):
    def mark(self) -> Any:
        """Now. Never waits."""

    def seconds(self, first: Any, last: Any) -> float:
        """Between two marks. May wait until the second one is reached."""


class HostClock:
    def mark(self) -> float:
        return time.perf_counter()

    def seconds(self, first: float, last: float) -> float:
        return last - first


class EventClock:
    """On the stream that the script computes on."""

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, first: Any, last: Any) -> float:
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3


def clock_for(roots: Iterable[torch.nn.Module]) -> Clock:
    """Events, where a model that trains is on a GPU."""
    on_gpu = any(parameter.is_cuda for root in roots for parameter in root.parameters())
    return EventClock() if on_gpu else HostClock()

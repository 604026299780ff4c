"""The list of marks, and the switches that the patched functions look at. Hot path: every line here costs step time.

One recorder a process. It is *unarmed* (every patched function passes straight through) until the first backward of
the process, in forked children (DataLoader workers), and for calls from other threads than the training one.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

from vivace.measure.inside.steps.timeline import Mark

# Two marks so close on the host have at most a kernel between them (a launch takes some 5 µs): they share an event.
_SAME_MOMENT_NS = 8_000

# The GPU may wait in between, though the host does not: these get an event of their own, however soon they come.
_LEAVES_A_WAIT = ("wait-", "comm-")

# Marks by which the next step shows where nothing else tells that one has ended.
NEW_WORK = frozenset({"data+", "wait+", "copy+", "fwd+", "bwd+", "eval", "train"})

__all__ = ["NEW_WORK", "Recorder", "gpu_marks", "host_marks", "waiting_for_a_batch"]

_recorders: list[Recorder] = []  # the process's own, for those whose waits it should name


class Recorder:
    """``inside`` is true within a forward, a backward or a batch fetch: whatever happens there belongs to them."""

    def __init__(self) -> None:
        self.reset()
        _recorders[:] = [self]
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        # In a forked child the parent's CUDA events must not be freed: that would call into a driver that is not there.
        self._of_the_parent = getattr(self, "marks", None)
        self.armed = False
        self.given_up = False
        self.evaluating = False  # between eval() and train() of a root
        self.inside = False
        self.backward_runs = False
        self.pending: Any = None  # to be called, once, before the next mark of new work
        self.exchanges_over: str | None = None  # the dimension of the last exchange with other ranks
        self.backward_makes_graph = False  # backward(create_graph=True): gradients of gradients will follow
        self.thread = 0
        self.device: Any = None  # the CUDA device whose stream is timed, or None for the host's clock only
        self._event: Any = None
        self._current_stream: Any = None
        self.marks: list[tuple[str, int, Any, Any]] = []

    def arm(self, device: Any) -> None:
        """Begin to record, for the calling thread and the device that the loss lives on."""
        import torch

        if device.type == "cuda":
            self.device = device
            self._event = torch.Event
            # An event records on the current device's stream; only a model on another device needs the detour.
            elsewhere = device.index is not None and device.index != torch.cuda.current_device()
            self._current_stream = torch.cuda.current_stream if elsewhere else None
        self.thread = threading.get_ident()
        self.armed = True
        self.mark("open")

    def here(self) -> bool:
        """Whether a patched function called now is one to record."""
        return self.armed and not self.inside and threading.get_ident() == self.thread

    def in_backward(self) -> bool:
        """Whether the training thread is in a backward pass, whichever thread asks."""
        return self.inside and self.backward_runs

    def may_exchange(self) -> bool:
        """Whether a wait for other ranks belongs to the step: also inside a forward, and in the threads of autograd."""
        return self.armed and (threading.get_ident() == self.thread or self.in_backward())

    def give_up(self) -> None:
        """After an error of our own: record nothing more in this process."""
        self.armed, self.given_up = False, True

    def new_work(self) -> None:
        """A step that was over, as far as could be told, is over now."""
        if self.pending is not None:
            pending, self.pending = self.pending, None
            pending()

    def mark(self, code: str, extra: Any = None) -> None:
        if self.pending is not None and code in NEW_WORK:
            self.new_work()
        if self._event is None:
            self.marks.append((code, time.perf_counter_ns(), None, extra))
            return
        now_ns = time.perf_counter_ns()
        if self.marks and now_ns - self.marks[-1][1] < _SAME_MOMENT_NS and code not in _LEAVES_A_WAIT:
            self.marks.append((code, now_ns, self.marks[-1][2], extra))
            return
        event = self._event(self.device, enable_timing=True)
        if self._current_stream is None:
            event.record()
        else:
            event.record(self._current_stream(self.device))
        self.marks.append((code, now_ns, event, extra))


@contextlib.contextmanager
def waiting_for_a_batch() -> Iterator[None]:
    """Around what makes the host or the GPU wait for a batch that was fetched ahead: it is loader wait. Does nothing in
    a process that is not measured."""
    recorder = _recorders[0] if _recorders else None
    if recorder is None or not recorder.here():
        yield
        return
    recorder.mark("wait+")
    try:
        yield
    finally:
        recorder.mark("wait-")


def host_marks(raw: list[tuple[str, int, Any, Any]]) -> list[Mark]:
    """The marks on the host's clock, in milliseconds from the first."""
    return [Mark(code, (ns - raw[0][1]) / 1e6, extra) for code, ns, _event, extra in raw]


def gpu_marks(raw: list[tuple[str, int, Any, Any]]) -> list[Mark]:
    """The marks on the GPU's clock. The caller has synchronised; reading earlier would raise."""
    marks, t_ms, previous = [], 0.0, None
    for code, _ns, event, extra in raw:
        if previous is not None and event is not previous:
            # Two events recorded back to back may differ by a rounding below zero.
            t_ms += max(0.0, previous.elapsed_time(event))
        marks.append(Mark(code, t_ms, extra))
        previous = event
    return marks

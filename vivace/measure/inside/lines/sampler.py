"""Samples the stack of the training thread for a few steps, about a thousand times a second, and keeps an account of
garbage collections.

A timer interrupts the main thread (``thread_timer``). Where that cannot be, a thread looks from beside: it is biased
towards lines that let other threads run, and says so. A second, slow look from beside sees what other threads do.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from vivace.measure.inside.lines.samples import Collection, Sample, callbacks, look
from vivace.measure.inside.lines.scheduler import Scheduler
from vivace.measure.inside.lines.thread_timer import NoTimer, ThreadTimer
from vivace.measure.inside.patches import unseen_by_dynamo
from vivace.protocol.sampling import Sampler

__all__ = ["LineSampler"]

PERIOD_NS = 1_000_000
_MOST = 200_000  # samples
_BESIDE_S = 0.02  # between two looks at the other threads: each takes the GIL from the training
_SWITCH_S = 0.0005  # where a thread must look at the training's: Python's 5 ms would blur everything below


class LineSampler:
    """For the calling thread, from ``begin`` to ``finish``. Everything that is seen is in ``samples``, ``collections``
    and ``others``: for each other thread's stack, how often it was seen."""

    def __init__(self, period_ns: int = PERIOD_NS, bottom: CodeType | None = None, beside: bool = True) -> None:
        """``bottom``: see ``look``. ``beside`` false: other threads are not looked at, and there must be a timer."""
        self.period_ns, self.bottom, self.looks_at_others = period_ns, bottom, beside
        self.samples: list[Sample] = []
        self.collections: list[Collection] = []
        self.others: dict[Any, int] = {}
        self.looks_beside = 0
        self.began_ns = self.ended_ns = 0
        self.how = Sampler.TIMER
        self.why_no_timer: str | None = None
        self._timer: ThreadTimer | None = None
        self._beside: _Beside | None = None
        self._open: tuple[int, Any, int] | None = None  # of a collection that runs
        self._waits = _intervals(period_ns)
        self._pid = os.getpid()
        self.cpu_ns: Callable[[], int] = time.perf_counter_ns
        """What the thread has computed so far."""

    def begin(self) -> None:
        self.cpu_ns = _clock_of_this_thread()
        self._scheduler = Scheduler()
        gc.callbacks.append(self._on_collection)
        atexit.register(self.finish)
        target = None
        try:
            self._timer = ThreadTimer(unseen_by_dynamo(self._handler(), and_beneath=True))
        except NoTimer as why:
            self.how, self.why_no_timer, target = Sampler.THREAD, str(why), threading.get_ident()
        if self.looks_at_others:
            self._beside = _Beside(self, target)
            self._beside.start()
        self.began_ns = time.perf_counter_ns()
        if self._timer is not None:
            self._timer.arm(next(self._waits))

    def finish(self) -> None:
        """From the thread that began. In a forked child there is nothing to end: it has no timer and no thread."""
        if self.ended_ns or os.getpid() != self._pid:
            return
        self.ended_ns = time.perf_counter_ns()
        if self._timer is not None:
            self._timer.close()
        if self._beside is not None:
            self._beside.done.set()
            self._beside.join(1.0)
        self._scheduler.close()
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self._on_collection)
        atexit.unregister(self.finish)

    def _handler(self) -> Any:
        samples, now, cpu = self.samples, time.perf_counter_ns, self.cpu_ns
        bottom = self.bottom
        waits, no_core, blocked = self._waits, self._scheduler.waited_ns, self._scheduler.blocked

        def handler(_signal: int, frame: FrameType | None) -> None:
            began = now()
            if frame is not None:
                stack = look(frame, bottom)
                samples.append(Sample(began, now(), cpu(), no_core(), blocked(), stack))
            timer = self._timer
            if timer is not None and not self.ended_ns and len(samples) < _MOST:
                timer.arm(next(waits))

        return handler

    def _on_collection(self, phase: str, _facts: dict[str, int]) -> None:
        if phase == "start":
            frame = sys._getframe(1)
            self._open = (time.perf_counter_ns(), frame.f_code, frame.f_lasti)
        elif self._open is not None:
            self.collections.append(Collection(self._open[0], time.perf_counter_ns(), *self._open[1:]))
            self._open = None


callbacks.add(LineSampler._on_collection.__code__)


def _clock_of_this_thread() -> Callable[[], int]:
    """What it has computed so far, for any thread to ask. Without such a clock, nothing is said to wait."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.perf_counter_ns
    clock = time.pthread_getcpuclockid(threading.get_ident())
    return functools.partial(time.clock_gettime_ns, clock)


class _Beside(threading.Thread):
    """Looks at the threads from one of its own. ``target``: the training's, where no timer interrupts it."""

    def __init__(self, sampler: LineSampler, target: int | None) -> None:
        super().__init__(name="vivace-lines", daemon=True)
        self.sampler, self.target = sampler, target
        self.trains = threading.get_ident()
        self.done = threading.Event()

    def run(self) -> None:
        before = sys.getswitchinterval()
        if self.target is not None:
            sys.setswitchinterval(min(before, _SWITCH_S))
        try:
            while not self.done.wait(_BESIDE_S if self.target is None else next(self.sampler._waits) / 1e9):
                self._look()
        finally:
            if self.target is not None:
                sys.setswitchinterval(before)

    def _look(self) -> None:
        sampler, mine = self.sampler, threading.get_ident()
        began = time.perf_counter_ns()
        sampler.looks_beside += 1
        frames = sys._current_frames()
        for thread, frame in frames.items():
            if thread == self.target:
                if len(sampler.samples) < _MOST:
                    sampler.samples.append(Sample(began, time.perf_counter_ns(), sampler.cpu_ns(), 0, 0, look(frame)))
            elif thread not in (mine, self.trains):
                stack = look(frame)
                sampler.others[stack] = sampler.others.get(stack, 0) + 1
        del frames


def _intervals(period_ns: int) -> Iterator[int]:
    """Around the period, never in step with a loop. Not from ``random``: its state is the script's."""
    state = 12345
    while True:
        state = (1103515245 * state + 12345) & 0x7FFFFFFF
        yield period_ns // 2 + period_ns * (state >> 11) // (1 << 20)

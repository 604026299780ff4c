"""A few steps under torch's profiler, after the timed ones: it slows them down."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import torch

from vivace.measure.inside.lines.sampler import LineSampler
from vivace.measure.inside.lines.seen import WorkShares, idle_lines, phases_since, work_shares
from vivace.measure.inside.profiling.kernels import ProfileWindow
from vivace.measure.inside.stages.stage import Stage
from vivace.measure.inside.training import Training
from vivace.protocol.sampling import SeenLine

__all__ = ["Profiler"]


_SECONDS_WITH_LINES = 0.25  # a sampler beside it needs some hundred looks to tell lines apart …
_MOST_WITH_LINES = 5  # … or so many times the steps


class Profiler(Stage):
    """On a CPU a sampler runs beside it, which shows how lines divide into operators and the rest (``work_shares``).

    On a GPU the sampler has a window of its own, with ``gaps``: which lines did the GPU wait for (``idle``)? Sampling
    slows a host that is the limit, and prices are taken from windows without it.
    """

    says = "profiling"

    def __init__(self, training: Training, gaps: bool = False) -> None:
        super().__init__(training)
        self.gaps = gaps
        self.seen: dict[str, Any] | None = None
        self.work_shares: WorkShares | None = None
        self.idle: list[SeenLine] = []
        self._window: ProfileWindow | None = None
        self._sampler: LineSampler | None = None
        self._first_mark = 0
        self._began_s = 0.0

    def begin(self) -> bool:
        if self.training.request.profile_steps <= 0 or (self.gaps and not self._has_gaps()):
            return False
        if why_not := self._why_not():
            self.training.notes.append(f"no profiler window: {why_not}")
            return False
        return True

    def _has_gaps(self) -> bool:
        return self.training.on_gpu and self.training.request.lines

    def _why_not(self) -> str | None:
        if threading.current_thread() is not threading.main_thread():
            return "the training runs in a thread, and the profiler in the main one only"
        if torch.autograd._profiler_enabled():
            return "the script runs a profiler of its own"
        try:
            self._window = ProfileWindow(on_gpu=self.training.on_gpu)
            self._window.begin()
            self._first_mark = len(self.training.recorder.marks)
            if self.training.request.lines and self.gaps == self.training.on_gpu:
                self._sampler = LineSampler()
                self._sampler.begin()
            self._began_s = time.perf_counter()
        except RuntimeError as error:
            return str(error)
        return None

    def step(self) -> bool:
        if self.steps < self.training.request.profile_steps or self._wants_more():
            return False
        assert self._window is not None
        if self._sampler is not None:
            self._sampler.finish()
        if self.training.on_gpu:
            torch.cuda.synchronize(self.training.device)
        marks = self.training.recorder.marks[self._first_mark :]
        self.seen = self._window.finish(self.steps, marks)
        if self._sampler is not None:
            phases = phases_since(self.training.recorder, self._first_mark - 1)
            if self.training.on_gpu:
                self.idle = idle_lines(self._sampler, phases, self._window.gaps(), self.steps)
            else:
                self.work_shares = work_shares(self._sampler, phases, self._window.operators())
        return True

    def _wants_more(self) -> bool:
        """Ranks must leave together: only a lone process may go by the clock."""
        if self._sampler is None or self.training.world > 1:
            return False
        short = time.perf_counter() - self._began_s < _SECONDS_WITH_LINES
        return short and self.steps < _MOST_WITH_LINES * self.training.request.profile_steps

    def leave(self) -> None:
        """A process that exits with a running profiler dies of SIGSEGV (torch 2.13)."""
        if self._window is None or threading.current_thread() is not threading.main_thread():
            return
        with contextlib.suppress(Exception):
            if self._sampler is not None:
                self._sampler.finish()
        with contextlib.suppress(Exception):
            self._window.stop()
        self._window = None

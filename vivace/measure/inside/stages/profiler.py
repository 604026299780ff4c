"""A few steps under torch's profiler, after the timed ones: it slows them down."""

from __future__ import annotations

import threading
from typing import Any

import torch

from vivace.measure.inside.profiling.kernels import ProfileWindow
from vivace.measure.inside.stages.stage import Stage
from vivace.measure.inside.training import Training

__all__ = ["Profiler"]


class Profiler(Stage):
    says = "profiling"

    def __init__(self, training: Training) -> None:
        super().__init__(training)
        self.seen: dict[str, Any] | None = None
        self._window: ProfileWindow | None = None
        self._first_mark = 0

    def begin(self) -> bool:
        if self.training.request.profile_steps <= 0:
            return False
        if why_not := self._why_not():
            self.training.notes.append(f"no profiler window: {why_not}")
            return False
        return True

    def _why_not(self) -> str | None:
        if threading.current_thread() is not threading.main_thread():
            return "the training runs in a thread, and the profiler in the main one only"
        if torch.autograd._profiler_enabled():
            return "the script runs a profiler of its own"
        try:
            self._window = ProfileWindow(on_gpu=self.training.on_gpu)
            self._window.begin()
            self._first_mark = len(self.training.recorder.marks)
        except RuntimeError as error:
            return str(error)
        return None

    def step(self) -> bool:
        if self.steps < self.training.request.profile_steps:
            return False
        assert self._window is not None
        if self.training.on_gpu:
            torch.cuda.synchronize(self.training.device)
        self.seen = self._window.finish(self.steps, self.training.recorder.marks[self._first_mark :])
        return True

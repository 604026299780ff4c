"""What is known of the training in this process. All stages share it; what one stage sees stays in that stage."""

from __future__ import annotations

import time
from typing import Any

import torch

from vivace.measure.inside.comparing.first_steps import FirstSteps
from vivace.measure.inside.facts.supply import Feed
from vivace.measure.inside.lines.workers import WorkerSwitch
from vivace.measure.inside.steps.cycles import Cycles
from vivace.measure.inside.steps.recorder import Recorder
from vivace.protocol.request import ProcessRequest

__all__ = ["Training"]


class Training:
    """One per process. The patches fill ``loaders``, ``feed``, ``forwards``, ``creations`` and ``debugging``."""

    def __init__(self, request: ProcessRequest, recorder: Recorder) -> None:
        self.request, self.recorder = request, recorder
        self.loaders: dict[str, Any] = {}  # settings of the DataLoaders seen
        self.feed = Feed()
        self.forwards: Any = None
        self.creations: Any = None
        self.debugging: Any = None
        self.workers_lines = WorkerSwitch()
        self.first_steps = FirstSteps(request.grad_norms)
        self.began_s = time.perf_counter()
        self.reset()

    def reset(self) -> None:
        """Nothing was trained yet; in a forked child, by this process."""
        self.steps = 0
        self.cycles = Cycles()
        self.notes: list[str] = []
        self.rank, self.world = 0, 1
        self.device = torch.device("cpu")

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def roots(self) -> Any:
        return self.forwards.roots if self.forwards is not None else ()

    def known_roots(self) -> set[torch.nn.Module]:
        """Also those that were called before the first backward pass only, where first steps are looked at."""
        return {*self.roots, *self.first_steps.roots}

"""A few steps in which torch tells every call that makes the host wait for the GPU."""

from __future__ import annotations

from vivace.measure.inside.profiling.syncs import SyncWatch
from vivace.measure.inside.stages.stage import Stage
from vivace.measure.inside.training import Training
from vivace.protocol.payload import Facts

__all__ = ["SyncPoints"]


class SyncPoints(Stage):
    says = "looking for sync points"

    def __init__(self, training: Training) -> None:
        super().__init__(training)
        self._watch: SyncWatch | None = None

    def begin(self) -> bool:
        if not self.training.on_gpu or self.training.request.sync_steps <= 0:
            return False
        self._watch = SyncWatch()
        self._watch.begin()
        return True

    def step(self) -> bool:
        assert self._watch is not None
        if self.steps < self.training.request.sync_steps:
            return False
        self._watch.finish()
        return True

    def seen(self) -> list[Facts]:
        return self._watch.as_list(self.training.request.sync_steps) if self._watch is not None else []

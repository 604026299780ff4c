"""A compiled model hides its operators: its FLOPs are counted last, in one uncompiled step, if that is sure to fit."""

from __future__ import annotations

from collections.abc import Callable

import torch

from vivace.measure.inside.counting.flops import can_run_uncompiled
from vivace.measure.inside.facts.memory import devices_in_use
from vivace.measure.inside.stages.counted_step import CountedStep
from vivace.measure.inside.stages.stage import Stage
from vivace.measure.inside.training import Training

__all__ = ["LateFlops"]

_TIGHT = 0.5  # of the GPU's memory reserved so far: an uncompiled step may need twice as much


class LateFlops(Stage):
    says = "counting FLOPs, uncompiled"

    def __init__(self, training: Training, counted: CountedStep, save: Callable[[], None]) -> None:
        super().__init__(training)
        self.counted, self.save = counted, save

    def begin(self) -> bool:
        if not self.training.request.count_flops or self.counted.count is not None:
            return False
        if not can_run_uncompiled():
            why = f"this torch ({torch.__version__}) cannot run a compiled model uncompiled for one step"
            self.training.notes.append(f"FLOPs not counted: {why}")
            return False
        if _memory_is_tight():
            self.training.notes.append("FLOPs not counted: the compiled model might not fit uncompiled")
            return False
        self.save()  # whatever the uncompiled step does, the figures are safe
        self.counted.begin()
        return True

    def step(self) -> bool:
        self.counted.finish()
        return True


def _memory_is_tight() -> bool:
    return any(
        torch.cuda.memory_stats(i).get("reserved_bytes.all.peak", 0)
        > _TIGHT * torch.cuda.get_device_properties(i).total_memory
        for i in devices_in_use()
    )

"""Steps until the loop runs at its lasting speed. In one of them FLOPs are counted, unless the model is compiled."""

from __future__ import annotations

import time

from vivace.measure.inside.counting.flops import something_was_compiled
from vivace.measure.inside.facts.worker_clock import WorkerClock
from vivace.measure.inside.stages.counted_step import CountedStep
from vivace.measure.inside.stages.detector import WarmupDetector
from vivace.measure.inside.stages.gradient_norms import NORM_STEPS
from vivace.measure.inside.stages.stage import Stage
from vivace.measure.inside.training import Training

__all__ = ["WarmUp"]

_SPARE_STEPS = 4  # FLOPs are counted in one, and windows begin and end between steps
_MARKS_KEPT = 20_000


class WarmUp(Stage):
    def __init__(self, training: Training, counted: CountedStep) -> None:
        super().__init__(training)
        self.counted = counted
        self.all_marks_kept = True
        self.workers = WorkerClock()
        self._set_counting(False)

    def _set_counting(self, counting: bool) -> None:
        self.counting = counting
        self.says = "counting FLOPs" if counting else "warming up"
        self.takes_norms = not counting

    def begin(self) -> bool:
        asked = self.training.request
        after = asked.steps + asked.profile_steps + asked.sync_steps + asked.histogram_steps + NORM_STEPS + _SPARE_STEPS
        several = self.training.world > 1
        self.detector = WarmupDetector(asked.warmup_steps, several_ranks=several, steps_after=after)
        return True

    def step(self) -> bool:
        if self.counting:
            self._set_counting(False)
            self.counted.finish()
            self.detector.forget_last()
            return False
        self.detector.step(time.perf_counter(), self.training.loaders, self.training.feed.supply())
        self.workers.watch(self.training.feed.worker_pids())
        self._forget_old_marks()
        if self.training.steps == 1:
            return False
        if self.training.request.count_flops and self.counted.count is None and not something_was_compiled():
            self._set_counting(True)
            self.counted.begin()
            return False
        return self.detector.is_over()

    def forget_last(self) -> None:
        """The last step was slowed down by us."""
        self.detector.forget_last()

    def cut_short(self) -> bool:
        return self.detector.cut_short()

    def restart(self) -> None:
        if self.counting:
            self._set_counting(False)
            self.counted.finish()
            self.counted.forget()
        self.steps = 0
        self.detector.restart()

    def _forget_old_marks(self) -> None:
        """A warm-up may be long; only its last steps can still be of use."""
        marks = self.training.recorder.marks
        if len(marks) > _MARKS_KEPT:
            _code, ns, event, _extra = marks[-1]  # the mark that ended this step
            marks[:] = [("open", ns, event, None)]
            self.all_marks_kept = False

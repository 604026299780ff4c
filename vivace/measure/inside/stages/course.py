"""The order of the stages, and the walk through them."""

from __future__ import annotations

from collections.abc import Callable

from vivace.measure.inside.stages.counted_step import CountedStep
from vivace.measure.inside.stages.energy_tail import EnergyTail
from vivace.measure.inside.stages.gradient_norms import GradientNorms
from vivace.measure.inside.stages.histograms import Histograms
from vivace.measure.inside.stages.late_flops import LateFlops
from vivace.measure.inside.stages.line_sampling import LineSampling
from vivace.measure.inside.stages.profiler import Profiler
from vivace.measure.inside.stages.second_look import SecondLook
from vivace.measure.inside.stages.stage import Stage
from vivace.measure.inside.stages.sync_points import SyncPoints
from vivace.measure.inside.stages.timed_window import TimedWindow
from vivace.measure.inside.stages.warm_up import WarmUp
from vivace.measure.inside.training import Training

__all__ = ["Course"]

_RESTARTS_MAX = 3  # a script that makes a new optimizer every epoch must not keep us waiting for ever


class Course:
    """``save`` writes what was seen so far, for a stage that may not survive its own step."""

    def __init__(self, training: Training, save: Callable[[], None]) -> None:
        self.counted = CountedStep(training)
        self.warm_up = WarmUp(training, self.counted)
        self.window = TimedWindow(training, self.warm_up)
        self.tail = EnergyTail(training, self.window)
        self.norms = GradientNorms(training)
        self.profiler = Profiler(training)
        self.gaps = Profiler(training, gaps=True)
        self.syncs = SyncPoints(training)
        self.histograms = Histograms(training)
        self.lines = LineSampling(training, self.profiler, self.gaps)
        self.second_look = SecondLook(training, self.lines)
        self.late_flops = LateFlops(training, self.counted, save)
        self.order: tuple[Stage, ...] = (
            self.warm_up,  # until the loop runs at its lasting speed; FLOPs are counted in one step of it
            self.window,  # the timed steps: nothing here may cost time or wait for the GPU
            self.tail,  # more steps, until the energy counter is exact enough
            self.norms,
            self.profiler,  # from here on steps are slowed down
            self.gaps,
            self.syncs,
            self.histograms,
            self.late_flops,  # late, because a compiled model may not fit uncompiled
            self.lines,  # last, because it may go on until the script ends
            self.second_look,
        )
        self._place = -1
        self._restarts = 0

    @property
    def stage(self) -> Stage | None:
        """None before the first step and after the last."""
        return self.order[self._place] if 0 <= self._place < len(self.order) else None

    @property
    def is_over(self) -> bool:
        return self._place >= len(self.order)

    @property
    def says(self) -> str:
        return self.stage.says if self.stage is not None else "done"

    def start(self) -> None:
        self._place = -1
        self.go_on()

    def go_on(self) -> None:
        """Begin the next stage that has something to do."""
        self._place += 1
        while self.stage is not None:
            self.stage.steps = 0
            if self.stage.begin():
                return
            self._place += 1

    def step(self) -> None:
        """After each step of the training."""
        assert self.stage is not None
        self.stage.steps += 1
        if self.stage.step():
            self.go_on()

    def leave(self) -> None:
        """There will be no more steps, or none that is measured."""
        if self.stage is not None:
            self.stage.leave()

    def begin_again(self) -> None:
        """What a step is has changed (another optimizer appeared): what was seen before is warm-up."""
        if self.stage in (self.warm_up, self.window) and self._restarts < _RESTARTS_MAX:
            self._restarts += 1
            self.window.forget()
            self.warm_up.restart()
            self._place = 0

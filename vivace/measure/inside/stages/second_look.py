"""Three steps in which the user's lines are traced, where samples cannot tell which line spent the time."""

from __future__ import annotations

import threading
from dataclasses import replace

from vivace.measure.inside.counting.flops import something_was_compiled
from vivace.measure.inside.lines.second_look import corrected, doubtful
from vivace.measure.inside.lines.tracing import LineTracer
from vivace.measure.inside.stages.line_sampling import LineSampling
from vivace.measure.inside.stages.stage import Stage
from vivace.measure.inside.training import Training

__all__ = ["SecondLook"]

_STEPS = 3
_WORTH_IT = 0.05  # of the step


class SecondLook(Stage):
    says = "tracing lines"

    def __init__(self, training: Training, sampling: LineSampling) -> None:
        super().__init__(training)
        self.sampling = sampling
        self._tracer: LineTracer | None = None

    def begin(self) -> bool:
        """Not with several ranks: each would decide for itself, and they must leave together."""
        seen = self.sampling.seen
        if seen is None or self.training.world > 1 or something_was_compiled() or not LineTracer.can_run():
            return False
        if threading.get_ident() != self.training.recorder.thread or not doubtful(seen.lines, seen.step_ms, _WORTH_IT):
            return False
        self._tracer = LineTracer()
        self._tracer.begin()
        return True

    def step(self) -> bool:
        if self.steps < _STEPS:
            return False
        self.close()
        return True

    def close(self) -> None:
        tracer, seen = self._tracer, self.sampling.seen
        if tracer is None or seen is None:
            return
        self._tracer = None
        tracer.finish()
        if not self.steps:
            return
        traced = {(code.co_filename, line): ns / 1e6 / self.steps for (code, line), ns in tracer.spent_ns.items()}
        before = {
            (code.co_filename, line): {(one.co_filename, number) for one, number in lines}
            for (code, line), lines in tracer.before.items()
        }
        self.sampling.seen = replace(seen, lines=corrected(seen.lines, traced, before), traced_steps=self.steps)

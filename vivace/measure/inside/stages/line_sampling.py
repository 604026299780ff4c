"""Steps of their own, after the timed ones, in which the stack of the training thread is sampled."""

from __future__ import annotations

import time

from vivace.measure.inside.lines.sampler import LineSampler
from vivace.measure.inside.lines.seen import describe, phases_since
from vivace.measure.inside.stages.profiler import Profiler
from vivace.measure.inside.stages.stage import Stage
from vivace.measure.inside.training import Training
from vivace.protocol.sampling import SeenSampling

__all__ = ["LineSampling"]

_FEWEST = 5  # steps
_SECONDS = 0.8  # a line with a twentieth of the time gets some forty samples …
_SAMPLES = 300  # … where the machine lets the thread run; if it does not, sampling goes on …
_MOST_SECONDS = 3.0  # … for so long
_TIMES_THE_TIMED = 4
_STEPS_OF_RANKS = 20  # ranks must leave together, and cannot each go by their own clock


class LineSampling(Stage):
    """Until it has lasted long enough, and never longer than four times the timed steps."""

    says = "sampling lines"

    def __init__(self, training: Training, profiler: Profiler, gaps: Profiler) -> None:
        super().__init__(training)
        self.profiler, self.gaps = profiler, gaps
        self.seen: SeenSampling | None = None
        self._sampler: LineSampler | None = None
        self._first_mark = 0
        self._began_s = 0.0

    @property
    def of(self) -> int:
        return max(_FEWEST, _TIMES_THE_TIMED * self.training.request.steps)

    def begin(self) -> bool:
        if not self.training.request.lines:
            return False
        self._sampler = LineSampler()
        self._first_mark = len(self.training.recorder.marks) - 1
        self._began_s = time.perf_counter()
        try:
            self._sampler.begin()
        except (OSError, RuntimeError, ValueError) as error:
            self.training.notes.append(f"no lines: the stack cannot be sampled ({error})")
            return False
        self.training.workers_lines.turn(on=True)
        return True

    def step(self) -> bool:
        if self.training.world > 1:
            over = self.steps >= _STEPS_OF_RANKS
        else:
            over = self.steps >= self.of or (self.steps >= _FEWEST and self._is_long_enough())
        if over:
            self.close()
        return over

    def _is_long_enough(self) -> bool:
        assert self._sampler is not None
        seconds = time.perf_counter() - self._began_s
        return seconds >= _SECONDS and (len(self._sampler.samples) >= _SAMPLES or seconds >= _MOST_SECONDS)

    def close(self) -> None:
        """Also where the script ends in between: what there is counts, if a step was whole."""
        sampler = self._sampler
        if sampler is None or sampler.ended_ns:
            return
        sampler.finish()
        self.training.workers_lines.turn(on=False)
        workers = self.training.workers_lines.collect()
        if self.steps and sampler.samples:
            phases = phases_since(self.training.recorder, self._first_mark)
            shares, idle = self.profiler.work_shares, self.gaps.idle
            self.seen = describe(sampler, phases, self.steps, shares, workers, idle)

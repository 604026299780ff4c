"""The timed steps. What is read at both ends of the window tells what happened in it; nothing is done in between."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from vivace.measure.inside.counting.flops import compiled_frames, something_was_compiled
from vivace.measure.inside.facts.energy import EnergyMeter
from vivace.measure.inside.facts.growth import MemorySeries
from vivace.measure.inside.facts.memory import allocator_counts, allocator_use, devices_in_use, memory_now
from vivace.measure.inside.facts.provenance import describe_devices
from vivace.measure.inside.facts.supply import Moment
from vivace.measure.inside.lines.scheduler import Scheduler
from vivace.measure.inside.stages.stage import Stage
from vivace.measure.inside.stages.warm_up import WarmUp
from vivace.measure.inside.training import Training
from vivace.protocol.payload import Facts, SeenMemory, SeenSupply

__all__ = ["TimedWindow"]


class TimedWindow(Stage):
    """``first_mark`` and ``last_mark`` are indices into the recorder's marks; the last is None while it is open."""

    says = "measuring"

    def __init__(self, training: Training, warm_up: WarmUp) -> None:
        super().__init__(training)
        self.warm_up = warm_up
        self.first_mark: int | None = None
        self.last_mark: int | None = None
        self.steps_before = 0
        self.seconds_before: float | None = None  # from the import of torch to the first timed step
        self.warmup_cut_short = False
        self.energy: EnergyMeter | None = None
        self.memory: SeenMemory | None = None
        self.recompiled: int | None = None  # frames
        self.workers_busy: float | None = None
        self._supply: tuple[Moment | None, Moment | None] = (None, None)
        self._allocator: tuple[dict[str, int] | None, dict[str, int] | None] = (None, None)
        self._frames_before = 0
        self._opened_s = 0.0
        self.memory_series: MemorySeries | None = None
        self.no_core_ms: float | None = None  # per step, of the training's thread
        self._scheduler: Scheduler | None = None
        self._no_core_before_ns = 0

    @property
    def of(self) -> int:
        return self.training.request.steps

    @property
    def is_whole(self) -> bool:
        return self.last_mark is not None

    def begin(self) -> bool:
        training = self.training
        training.first_steps.close()
        if training.forwards is not None:
            training.forwards.watches_padding = False
            if not something_was_compiled():
                training.forwards.narrow()
        self.steps_before = training.steps
        self.warmup_cut_short = self.warm_up.cut_short()
        self._supply = (training.feed.moment(), None)
        training.feed.before_workers_end = self._look_at_workers
        self.warm_up.workers.watch(training.feed.worker_pids(), anew=True)
        self._opened_s = time.perf_counter()
        self._allocator = (self._allocator_now(), None)
        self._frames_before = compiled_frames()
        self.memory_series = MemorySeries(training.on_gpu, self.of)
        self._scheduler = Scheduler()
        self._no_core_before_ns = self._scheduler.waited_ns()
        self.seconds_before = time.perf_counter() - training.began_s
        self.first_mark = len(training.recorder.marks) - 1
        self.energy = EnergyMeter([device.uuid for device in describe_devices(devices_in_use())])
        self.energy.start()
        return True

    def step(self) -> bool:
        if self.memory_series is not None:
            self.memory_series.note(self.steps)
        if self.steps < self.of:
            return False
        training = self.training
        self._look_at_workers(training.feed.worker_pids())
        self.last_mark = len(training.recorder.marks)
        if self._scheduler is not None and self._scheduler.tells:
            self.no_core_ms = (self._scheduler.waited_ns() - self._no_core_before_ns) / 1e6 / self.steps
            self._scheduler.close()
        self._supply = (self._supply[0], training.feed.moment())
        self._allocator = (self._allocator[0], self._allocator_now())
        self.recompiled = compiled_frames() - self._frames_before
        self.memory = memory_now()
        if self.memory_series is not None:
            self.memory_series.close()
        if training.forwards is not None:
            training.forwards.settle_padding()
        return True

    def forget(self) -> None:
        """It was opened too early."""
        self.first_mark = None

    def _look_at_workers(self, pids: Sequence[int]) -> None:
        """At the end of the window, and where workers, or the script, end before it. A batch is asked for once a step:
        only what is longer than that is time in which nobody wants batches."""
        if not self.is_whole:
            one_step_s = (time.perf_counter() - self._opened_s) / max(1, self.steps)
            share = self.warm_up.workers.busy_share(pids, max(0.0, self.training.feed.idle_s() - one_step_s))
            self.workers_busy = self.workers_busy if share is None else share

    def supply(self) -> SeenSupply:
        self._look_at_workers(self.training.feed.worker_pids())
        start, end = self._supply
        return SeenSupply(
            ready_at_start=start.ready if start else None,
            ready_at_end=end.ready if end else None,
            used=end.batches - start.batches if start and end and start.epochs == end.epochs else None,
            warmup_cut_short=self.warmup_cut_short,
            workers_busy=self.workers_busy,
        )

    def allocator(self) -> Facts | None:
        return allocator_use(*self._allocator, self.of)

    def _allocator_now(self) -> dict[str, int] | None:
        with contextlib.suppress(Exception):  # counters are never worth a measurement
            return allocator_counts() if self.training.on_gpu else None
        return None

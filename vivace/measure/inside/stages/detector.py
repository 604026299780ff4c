"""When has a training loop settled? A pure rule over the times at which steps ended and the batches then ready."""

from __future__ import annotations

from statistics import median
from typing import Any

from vivace.measure.inside.facts.supply import Supply

__all__ = ["WarmupDetector"]

_LAST = 3  # steps that must agree …
_SPREAD = 1.2  # … within this ratio
_MOST = 20  # give up waiting for agreement after so many: some loops never settle
_MOST_BUFFERED = 48
_FOR_SEVERAL_RANKS = 10  # ranks must open the window at the same step, so they cannot each decide by their own clock
_DRAINED = 1  # batches: with no more than so many ready, the loop runs at the loader's speed
_SPAN_MIN = 10  # steps: over fewer, a queue that loses a tenth of a batch a step seems not to fall
_STALLED = 1.5  # times the median step: during a longer one the queue fills up again, and only seems to keep up
_MOST_DRAINING = 200  # steps, and …
_MOST_DRAINING_S = 8.0  # … seconds to wait for a queue that runs empty: a very long one would take too long


class WarmupDetector:
    """Over after a set number of steps, or when the last three took about the same time and the queue is steady.

    A DataLoader with workers starts with a full buffer (workers times prefetch); the loop shows its lasting speed only
    once as many batches were used, so at least that many steps are warm-up. Workers that are a little slower than the
    model make up for most of what is used: then the buffer lasts much longer, and as long as it does the loop is too
    fast. So where the number of ready batches is known, it must have stopped falling.
    """

    def __init__(self, fixed_steps: int | None, several_ranks: bool, steps_after: int = 0) -> None:
        """``steps_after``: how many the measurement still needs; it does not wait until the epoch has fewer left."""
        self.fixed_steps, self.several_ranks, self.steps_after = fixed_steps, several_ranks, steps_after
        self.restart()

    def restart(self) -> None:
        self.ends_s: list[float] = []
        self.supplies: list[Supply] = []  # since the last step at which it was not known
        self.buffered = 0
        self.steps = 0
        self.now_s = 0.0
        self.settled: tuple[int, float] | None = None  # step and time from which on only the queue is waited for

    def step(self, now_s: float, loaders: dict[str, Any], supply: Supply | None = None) -> None:
        self.steps += 1
        self.now_s = now_s
        self.ends_s.append(now_s)
        if supply is None:
            self.supplies.clear()
        else:
            self.supplies.append(supply)
        self.buffered = min(_MOST_BUFFERED, max((_buffer(loader) for loader in loaders.values()), default=0))
        if self.settled is None and self._times_agree():
            self.settled = (self.steps, now_s)

    def forget_last(self) -> None:
        """The step just done was slowed down on purpose (FLOP counting): do not compare with it."""
        self.ends_s = []
        self.settled = None

    def is_over(self) -> bool:
        if self.fixed_steps is not None:
            return self.steps >= self.fixed_steps
        if self.several_ranks:
            return self.steps >= max(_FOR_SEVERAL_RANKS, self.buffered)
        return self.settled is not None and (self._queue_is_steady() or self._waited_enough())

    def cut_short(self) -> bool:
        """Whether the warm-up is over though the queue still runs empty."""
        decided_here = self.fixed_steps is None and not self.several_ranks
        return decided_here and self.is_over() and not self._queue_is_steady()

    def _times_agree(self) -> bool:
        if self.steps < self.buffered:
            return False
        if self.steps >= max(_MOST, self.buffered):
            return True
        times = [after - before for before, after in zip(self.ends_s, self.ends_s[1:])][-_LAST:]
        return len(times) == _LAST and max(times) <= _SPREAD * min(times)

    def _queue_is_steady(self) -> bool:
        """Unknown, empty, refilled as fast as it is used (a worker has nothing to do), or simply no longer falling."""
        if not self.supplies:
            return True
        now = self.supplies[-1]
        if now.ready <= _DRAINED:
            return True
        if now.awaited < now.workers and self.steps > now.workers:  # from a full queue each step wakes one worker
            return True
        return self._has_not_fallen(max(2 * now.workers, _SPAN_MIN))

    def _has_not_fallen(self, span: int) -> bool:
        """The highest counts of two spans: workers that began together deliver together, and between two deliveries,
        a little more than a batch per worker apart, a falling queue stands still or rises."""
        ready = [supply.ready for supply in self.supplies[-2 * span :]]
        if len(ready) < 2 * span or self._has_stalled(2 * span):
            return False
        return max(ready[span:]) >= max(ready[:span])

    def _has_stalled(self, span: int) -> bool:
        ends = self.ends_s[-span - 1 :]
        times = [after - before for before, after in zip(ends, ends[1:])]
        return bool(times) and max(times) > _STALLED * median(times)

    def _waited_enough(self) -> bool:
        assert self.settled is not None
        step, at_s = self.settled
        left = self.supplies[-1].left if self.supplies else None
        if left is not None and left <= self.steps_after:
            return True
        return self.steps - step >= _MOST_DRAINING or self.now_s - at_s >= _MOST_DRAINING_S


def _buffer(loader: dict[str, Any]) -> int:
    return int(loader["num_workers"]) * int(loader["prefetch_factor"] or 0)

"""When has a training loop settled? A pure rule over the times at which steps ended."""

from __future__ import annotations

from typing import Any

__all__ = ["WarmupDetector"]

_LAST = 3  # steps that must agree …
_SPREAD = 1.2  # … within this ratio
_MOST = 20  # give up waiting for agreement after so many: some loops never settle
_MOST_BUFFERED = 48
_FOR_SEVERAL_RANKS = 10  # ranks must open the window at the same step, so they cannot each decide by their own clock


class WarmupDetector:
    """Over after a set number of steps, or when the last three took about the same time.

    A DataLoader with workers starts with a full buffer (workers times prefetch); the loop shows its lasting speed only
    once as many batches were used, so at least that many steps are warm-up.
    """

    def __init__(self, fixed_steps: int | None, several_ranks: bool) -> None:
        self.fixed_steps, self.several_ranks = fixed_steps, several_ranks
        self.restart()

    def restart(self) -> None:
        self.ends_s: list[float] = []
        self.buffered = 0
        self.steps = 0

    def step(self, now_s: float, loaders: dict[str, Any]) -> None:
        self.steps += 1
        self.ends_s.append(now_s)
        self.buffered = min(_MOST_BUFFERED, max((_buffer(loader) for loader in loaders.values()), default=0))

    def forget_last(self) -> None:
        """The step just done was slowed down on purpose (FLOP counting): do not compare with it."""
        self.ends_s = []

    def is_over(self) -> bool:
        if self.fixed_steps is not None:
            return self.steps >= self.fixed_steps
        if self.several_ranks:
            return self.steps >= max(_FOR_SEVERAL_RANKS, self.buffered)
        if self.steps < self.buffered:
            return False
        if self.steps >= max(_MOST, self.buffered):
            return True
        times = [after - before for before, after in zip(self.ends_s, self.ends_s[1:], strict=False)][-_LAST:]
        return len(times) == _LAST and max(times) <= _SPREAD * min(times)


def _buffer(loader: dict[str, Any]) -> int:
    return int(loader["num_workers"]) * int(loader["prefetch_factor"] or 0)

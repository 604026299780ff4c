"""When to switch and what to time: windows of a few steps, without the arm and with it, in the order A B B A.

After each switch one step is not timed: caches and the loader's queue still belong to the other arm. Short windows
compare best, because the machine drifts; only where steps are shorter than the clock can tell, several are timed.
"""

from __future__ import annotations

import math

__all__ = ["Windows"]

_DROPPED = 1
_SHORTEST_S = 0.02
_MOST_TIMED = 20
_ORDER = (False, True, True, False)  # with the arm


class Windows:
    """One comparison. ``step`` is called at every end of a step with its time, and answers whether the arm is to be on
    for the next one. ``step_s``: about how long one takes."""

    def __init__(self, step_s: float) -> None:
        self.timed = max(1, min(_MOST_TIMED, math.ceil(_SHORTEST_S / max(step_s, 1e-6))))
        self.seconds: dict[bool, list[float]] = {False: [], True: []}
        self.place = 0
        self.since_switch = 0
        self.began: float | None = None

    @property
    def arm_is_on(self) -> bool:
        return _ORDER[self.place % len(_ORDER)]

    @property
    def pairs(self) -> int:
        return min(map(len, self.seconds.values()))

    @property
    def whole(self) -> bool:
        """Right at the end of an A B B A: as many windows of each."""
        return self.place > 0 and self.place % len(_ORDER) == 0 and self.since_switch == _DROPPED

    def reads_clock(self) -> bool:
        """Whether the end of the step that runs now is one of a window."""
        return self.since_switch + 1 in (_DROPPED, _DROPPED + self.timed)

    def step(self, now: float) -> bool:
        self.since_switch += 1
        if self.since_switch == _DROPPED:
            self.began = now
        elif self.since_switch == _DROPPED + self.timed:
            assert self.began is not None
            self.seconds[self.arm_is_on].append((now - self.began) / self.timed)
            was_on = self.arm_is_on
            self.place += 1
            # Two windows of the same arm in a row: nothing is switched, so nothing is dropped.
            self.since_switch, self.began = (_DROPPED, now) if self.arm_is_on == was_on else (0, None)
        return self.arm_is_on

"""When to switch and what to time: windows of a few steps, without the arm and with it, in the order A B B A.

After each switch one step is not timed: caches and the loader's queue still belong to the other arm. Short windows
compare best, because the machine drifts; only where steps are shorter than the clock can tell, several are timed.
"""

from __future__ import annotations

import math
from typing import Any

from vivace.practices.switching.clocks import Clock, HostClock

__all__ = ["Windows"]

_DROPPED = 1
_SHORTEST_S = 0.02
_MOST_TIMED = 20
_ORDER = (False, True, True, False)  # with the arm


class Windows:
    """One comparison. ``step`` is called at every end of a step and answers whether the arm is to be on for the next
    one. Its mark is one of ``clock``'s where ``reads_clock`` asks for it. ``step_s``: about how long a step takes."""

    def __init__(self, step_s: float, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or HostClock()
        self.timed = max(1, min(_MOST_TIMED, math.ceil(_SHORTEST_S / max(step_s, 1e-6))))
        self.spans: dict[bool, list[tuple[Any, Any]]] = {False: [], True: []}
        self.place = 0
        self.since_switch = 0
        self.whole = False
        """Right at the end of an A B B A: as many windows of each."""
        self.began: Any = None

    @property
    def arm_is_on(self) -> bool:
        return _ORDER[self.place % len(_ORDER)]

    @property
    def pairs(self) -> int:
        return min(map(len, self.spans.values()))

    @property
    def seconds(self) -> dict[bool, list[float]]:
        """Per step, of each window without the arm and with it. May wait for the GPU."""
        return {on: [self.clock.seconds(*span) / self.timed for span in spans] for on, spans in self.spans.items()}

    def reads_clock(self) -> bool:
        """Whether the end of the step that runs now is one of a window."""
        return self.since_switch + 1 in (_DROPPED, _DROPPED + self.timed)

    def step(self, now: Any) -> bool:
        self.since_switch += 1
        self.whole = False
        if self.since_switch == _DROPPED:
            self.began = now
        elif self.since_switch == _DROPPED + self.timed:
            assert self.began is not None
            self.spans[self.arm_is_on].append((self.began, now))
            was_on = self.arm_is_on
            self.place += 1
            self.whole = self.place % len(_ORDER) == 0
            # Two windows of the same arm in a row: nothing is switched, so nothing is dropped.
            self.since_switch, self.began = (_DROPPED, now) if self.arm_is_on == was_on else (0, None)
        return self.arm_is_on

    def drop_a_step(self) -> None:
        """The step that runs next is not timed."""
        self.since_switch, self.began = 0, None

"""Takes the arms one after the other, while the user's script trains: warms each, compares it, keeps it if it pays.

Runs in the user's process, at the end of every training step. What was seen is written after each arm, and before the
next one is tried: if that one ends the process, whoever asked knows which it was.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vivace.measure.inside.leaving import Exit
from vivace.measure.inside.steps.cycles import Cycles
from vivace.practices.engine.change import NotApplicable
from vivace.practices.engine.parts import Parts
from vivace.practices.switching.arms import Arms
from vivace.practices.switching.clocks import Clock, HostClock, clock_for
from vivace.practices.switching.live import Live
from vivace.practices.switching.pairs import LOOKS, Estimate, estimate
from vivace.practices.switching.windows import Windows
from vivace.protocol.progress import SeenProgress
from vivace.protocol.rank import rank_and_world
from vivace.protocol.switchback import ArmSeen, ArmState, SeenSwitchback, SwitchbackTest, seen_name

__all__ = ["Driver"]

_PAYS = 1.01  # what an arm must bring at least, by the lower end of its range
_OF_NO_USE = 1.01  # what it may bring at most, by the upper end
_FEWEST_WARM, _MOST_WARM = 3, 12
_STEADY = 1.5  # a step that takes no longer than this times the one before: the arm is warm
_FIRST_STEPS = 5
_TOTAL = "everything that was kept"


class Driver:
    """``on_cycle`` is called at the end of every training step. ``excluded``: whether two cannot go together."""

    def __init__(
        self, test: SwitchbackTest, arms: Arms, parts: Parts, folder: Path, excluded: Callable[[str, str], bool]
    ) -> None:
        self.test, self.arms, self.parts, self.folder = test, arms, parts, folder
        self.excluded = excluded
        self.cycles = Cycles()
        self.exit = Exit()
        self.pid = os.getpid()
        self.waiting = [*test.words]
        self.kept = tuple(test.start)
        self.seen: list[ArmSeen] = []
        self.total: ArmSeen | None = None
        self.steps = 0
        self.step_s = 0.0
        self.clock: Clock = HostClock()
        self.last: Any = None
        self.began: float | None = None
        self.trying: str | None = None
        self.base: tuple[str, ...] = ()
        self.with_arm: tuple[str, ...] = ()
        self.windows: Windows | None = None
        self.warm: list[float] = []
        self.warming_s = 0.0
        self.done = False

    def here(self) -> bool:
        return os.getpid() == self.pid and not self.done

    def on_cycle(self) -> None:
        self.steps += 1
        if self.steps < _FIRST_STEPS:
            return
        if self.steps == _FIRST_STEPS:
            self._begin()
        elif self.windows is None:
            self._warm_up(self.clock.seconds(self.last, self.clock.mark()))
        else:
            self._compare(self.clock.mark() if self.windows.reads_clock() else None)
        if self.windows is None and not self.done:
            self.last = self.clock.mark()

    @property
    def live(self) -> Live:
        return Live(list(self.parts.met), self.cycles.seen())

    # -- one arm after the other ---------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.clock = clock_for(self.parts.met)
        self.began = time.perf_counter()
        with contextlib.suppress(NotApplicable):
            self.arms.switch_to(self.kept, self.live)
        self._next()

    def _next(self) -> None:
        """The next arm that can be tried, or the end."""
        self.windows, self.warm, self.trying = None, [], None
        while self.waiting and self._left_s() > 0:
            word = self.waiting.pop(0)
            if any(self.excluded(word, kept) for kept in self.kept):
                self._note(ArmSeen(word, ArmState.NOT_REACHED, text=f"{', '.join(self.kept)} excludes it"))
                continue
            if self._switch_on(word, self.kept, (*self.kept, word)):
                return
        may_look_at_all = len(self.kept) > 1 and self.total is None and self._left_s() > 0
        if not (may_look_at_all and self._switch_on(_TOTAL, (), self.kept)):
            self._finish()

    def _switch_on(self, label: str, base: tuple[str, ...], with_arm: tuple[str, ...]) -> bool:
        self.trying, self.base, self.with_arm = label, base, with_arm
        if label != _TOTAL and not self.arms.changes[label].switchable:
            self._note(ArmSeen(label, ArmState.NOT_SWITCHABLE))
            return False
        self._write(complete=False)
        try:
            self.arms.switch_to(with_arm, self.live)
        except NotApplicable as reason:
            self._note(ArmSeen(label, ArmState.REFUSED, text=str(reason)))
            self._go_back()
            return False
        return True

    def _warm_up(self, took: float) -> None:
        self.warm.append(took)
        self.warming_s += took
        change = self.arms.changes.get(self.trying or "")
        undecided = change is not None and change.undecided
        if len(self.warm) < _FEWEST_WARM or ((undecided or not self._is_steady()) and len(self.warm) < _MOST_WARM):
            return
        if change is not None and not change.answer().applied:
            assert self.trying is not None
            self._note(ArmSeen(self.trying, ArmState.REFUSED, text=change.answer().text))
            self._go_back()
            self._next()
            return
        self.step_s = min(self.warm)
        self.windows = Windows(self.step_s, self.clock)
        self._switch(self.windows.arm_is_on)

    def _is_steady(self) -> bool:
        return self.warm[-1] <= _STEADY * min(self.warm)

    def _compare(self, now: Any) -> None:
        assert self.windows is not None
        self._switch(self.windows.step(now))
        self._tell()
        if not self.windows.whole:
            return
        if self.windows.pairs >= LOOKS[0] and self._is_time_to_look():
            seconds = self.windows.seconds
            found = estimate(seconds[False], seconds[True])
            state = self._judge(found)
            if state is not ArmState.UNDECIDED or self.windows.pairs >= LOOKS[-1] or self._left_s() <= 0:
                self._settle(state, found)
            else:
                self.windows.drop_a_step()  # looking may have waited for the GPU

    def _is_time_to_look(self) -> bool:
        assert self.windows is not None
        pairs = self.windows.pairs
        return self._left_s() <= 0 or any(pairs - 2 < look <= pairs for look in LOOKS)

    @staticmethod
    def _judge(found: Estimate) -> ArmState:
        if found.low >= _PAYS:
            return ArmState.PAYS
        return ArmState.NO_GAIN if found.high <= _OF_NO_USE else ArmState.UNDECIDED

    def _settle(self, state: ArmState, found: Estimate) -> None:
        assert self.trying is not None
        arm = ArmSeen(self.trying, state, found.ratio, found.low, found.high, found.pairs)
        if self.trying == _TOTAL:
            self.total = arm
        else:
            if state is ArmState.PAYS:
                self.kept = self.with_arm
            self._note(arm)
        self._go_back()
        self._next()

    def _switch(self, with_arm: bool) -> None:
        self.arms.switch_to(self.with_arm if with_arm else self.base, self.live)

    def _go_back(self) -> None:
        """To what is kept."""
        with contextlib.suppress(NotApplicable):
            self.arms.switch_to(self.kept, self.live)

    # -- telling -------------------------------------------------------------------------------------------------------

    def _left_s(self) -> float:
        """Warming up is not counted: it may be a compilation."""
        assert self.began is not None
        return self.test.seconds - (time.perf_counter() - self.began - self.warming_s)

    def _note(self, arm: ArmSeen) -> None:
        self.seen.append(arm)
        self.trying = None
        self._write(complete=False)

    def _finish(self) -> None:
        for word in self.waiting:
            self.seen.append(ArmSeen(word, ArmState.NOT_REACHED, text="not enough time"))
        self.waiting = []
        self.trying = None
        self._write(complete=True)
        self.done = True
        self.exit.leave(alone=rank_and_world()[1] == 1)

    def at_exit(self) -> None:
        if self.here() and self.began is not None:
            self._write(complete=False)

    def _write(self, complete: bool) -> None:
        trying = () if self.trying in (None, _TOTAL) else (ArmSeen(str(self.trying), ArmState.TRYING),)
        spent = time.perf_counter() - self.began if self.began is not None else 0.0
        seen = SeenSwitchback((*self.seen, *trying), self.kept, self.total, complete, self.steps, spent)
        self._replace(self.folder / seen_name(self.pid), seen.to_text())

    def _tell(self) -> None:
        assert self.windows is not None
        pairs = self.windows.pairs
        seen = SeenProgress(rank_and_world()[0], f"switching {self.trying}", pairs, LOOKS[-1], self.steps)
        if pairs % 4 == 0:
            self._replace(self.folder / f"progress-{socket.gethostname()}-{self.pid}.json", seen.to_text())

    @staticmethod
    def _replace(path: Path, text: str) -> None:
        temporary = path.with_suffix(".tmp")
        with contextlib.suppress(OSError):
            temporary.write_text(text)
            os.replace(temporary, path)

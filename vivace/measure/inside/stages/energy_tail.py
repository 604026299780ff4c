"""More steps after the window, until the energy counter has run for long enough to be exact."""

from __future__ import annotations

from vivace.measure.inside.stages.stage import Stage
from vivace.measure.inside.stages.timed_window import TimedWindow
from vivace.measure.inside.training import Training

__all__ = ["EnergyTail"]

ENERGY_WINDOW_S = 2.0  # the NVML counter is refreshed every 20 to 100 ms: two seconds keep that error below 5 %
_STEPS_MAX = 2000


class EnergyTail(Stage):
    says = "measuring energy"

    def __init__(self, training: Training, window: TimedWindow) -> None:
        super().__init__(training)
        self.window = window

    def begin(self) -> bool:
        return not self.step()  # the window alone may have been long enough

    def step(self) -> bool:
        """Ranks must leave together: only a lone process may wait."""
        energy = self.window.energy
        assert energy is not None
        short = energy.handles and energy.seconds() < ENERGY_WINDOW_S
        if short and self.training.world == 1 and self.steps < _STEPS_MAX:
            return False
        self.close()
        return True

    def close(self) -> None:
        if self.window.energy is not None:
            self.window.energy.stop(self.training.request.steps + self.steps)

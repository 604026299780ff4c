"""Planned against achieved: what a ``Plan`` said about a job, beside what the job did. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from vivace.launch.achieved import Achieved
from vivace.launch.words import slurm_time
from vivace.records.plan import Plan, PlanInterval

__all__ = ["Compared", "compare", "why_not_alike"]

_S_PER_DAY = 86_400


@dataclass(frozen=True)
class Compared:
    """One figure. ``low`` and ``high`` bound the plan's estimate, where it has bounds."""

    what: str
    unit: str
    planned: float
    achieved: float
    low: float | None = None
    high: float | None = None

    @property
    def sentence(self) -> str:
        """
        >>> Compared("MFU", "%", 61.2, 57.04).sentence
        'planned 61.2 %, got 57 %'
        >>> Compared("time", "s", 7200, 9000, 6000, 8000).sentence
        'planned 02:00:00 (01:40:00 to 02:13:20), got 02:30:00: above the range'
        """
        bounds = f" ({self._text(self.low)} to {self._text(self.high)})" if self._bounded else ""
        unit = "" if self.unit == "s" else f" {self.unit}"
        return f"planned {self._text(self.planned)}{unit}{bounds}, got {self._text(self.achieved)}{unit}{self._outside}"

    @property
    def _bounded(self) -> bool:
        return self.low is not None and self.high is not None

    @property
    def _outside(self) -> str:
        if self.high is not None and self.achieved > self.high:
            return ": above the range"
        return ": below the range" if self.low is not None and self.achieved < self.low else ""

    def _text(self, value: float | None) -> str:
        assert value is not None
        return slurm_time(value) if self.unit == "s" else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def compare(plan: Plan, achieved: Achieved | None, ran_s: float | None, energy_j: float | None) -> list[Compared]:
    """What both sides know. ``ran_s`` and ``energy_j`` are those of the whole job, once it has ended well."""
    found = []
    if achieved is not None:
        found += [
            _bounded("step", "ms", plan.step_ms, achieved.step_ms),
            _plain("throughput", "samples/s", plan.samples_per_s, achieved.samples_per_s),
            _plain("MFU", "%", plan.mfu_pct, achieved.mfu_pct),
        ]
    if plan.run is not None:
        found += [
            _bounded("time", "s", plan.run.days, ran_s, _S_PER_DAY),
            _bounded("energy", "kWh", plan.run.energy_mwh, None if energy_j is None else energy_j / 3.6e6, 1000),
        ]
    return [each for each in found if each is not None]


def _bounded(what: str, unit: str, plan: PlanInterval, achieved: float | None, scale: float = 1.0) -> Compared | None:
    if achieved is None:
        return None
    return Compared(what, unit, plan.estimate * scale, achieved, plan.low * scale, plan.high * scale)


def _plain(what: str, unit: str, planned: float, achieved: float | None) -> Compared | None:
    return None if achieved is None else Compared(what, unit, planned, achieved)


def why_not_alike(plan: Plan, gpus: int | None, achieved: Achieved | None) -> str | None:
    """Why the two cannot be compared, in words; None when they can."""
    if gpus is not None and gpus != plan.gpus:
        return f"planned for {plan.gpus} GPUs, and sent to {gpus}: not compared"
    batch = achieved.global_batch if achieved else None
    if batch is not None and batch != plan.global_batch:
        return f"planned with a global batch of {plan.global_batch}, and trained with {batch}: not compared"
    return None

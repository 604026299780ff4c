"""A small model of one training step, from which every practice computes what it should really save.

The host launches work, the GPU does it, the loader supplies batches, and they overlap. So time saved on one of them
counts only while that one is the limit:

    step = max(supply, loader + max(host, device) + gap)

``host`` is what the host needs to launch a step when it never waits, ``device`` the time in which the GPU is busy,
``gap`` what neither explains (after a synchronisation the GPU waits until the host has launched again), ``loader`` the
time a step waits for data that its own process makes, and ``supply`` the rate of a loader whose workers are the limit.
On a CPU all computing is the host's. Pure; used by ``find`` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from vivace.practices.engine.loaders import rare_waits, waited_for
from vivace.practices.engine.practice import Saved
from vivace.practices.engine.pricing import busy_ms, idle_ms, on_gpu, phase_ms, step_ms

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

__all__ = ["Less", "Shares", "StepModel", "host_phase_ms", "host_share", "likely_saved", "share_saved", "step_model"]

# The profiler takes time at every launch: what the host needs without it, over what it needs with it. Jobs of
# price_measurements.jsonl whose host is the limit: 0.54 to 0.71.
PROFILED_HOST = 0.65
_US_PER_KERNEL = 25.0  # of the host, where no profile tells: 18 to 40 in the same jobs
_HOST_IS_THE_LIMIT = 0.15  # of the step idle, and hardly a wait for the GPU
_HARDLY = 0.05
_LOADER_IS_THE_LIMIT = 0.05  # of the step waited for workers


class Shares(NamedTuple):
    """What a practice saves of the time that it acts on: usually, and at the two ends of what was seen."""

    usual: float
    least: float
    most: float


@dataclass(frozen=True)
class Less:
    """What a practice takes away, in milliseconds per step; negative where it adds. ``gap`` is a share of the gap."""

    host_ms: float = 0.0
    device_ms: float = 0.0
    loader_ms: float = 0.0
    gap: float = 0.0


@dataclass(frozen=True)
class StepModel:
    step_ms: float
    host_ms: float
    device_ms: float
    loader_ms: float
    gap_ms: float
    supply_ms: float = 0.0

    def after(self, less: Less) -> float:
        """Milliseconds of a step without what the practice takes away."""
        host, device = max(0.0, self.host_ms - less.host_ms), max(0.0, self.device_ms - less.device_ms)
        loader = max(0.0, self.loader_ms - less.loader_ms)
        return max(self.supply_ms, loader + max(host, device) + (1 - less.gap) * self.gap_ms)

    def saved_ms(self, less: Less) -> float:
        return self.step_ms - self.after(less)


def step_model(m: Measurement) -> StepModel:
    step = step_ms(m)
    loader, supply = phase_ms(m, "loader"), 0.0
    source = waited_for(m)
    if source is not None and source.num_workers and loader > _LOADER_IS_THE_LIMIT * step and not rare_waits(m, source):
        supply = step  # workers set the pace: the step takes as long as a batch does
    computing = max(0.0, step - loader)
    busy = busy_ms(m)
    if not on_gpu(m) or busy is None:
        return StepModel(step, computing, 0.0, loader, 0.0, supply)
    device, host = min(busy, computing), min(_host_ms(m, computing), computing)
    return StepModel(step, host, device, loader, computing - max(host, device), supply)


def _host_ms(m: Measurement, computing: float) -> float:
    """What the host needs to launch a step. Where the GPU idles and the host hardly waits, that is the whole step."""
    assert m.profile is not None
    waits = m.profile.host_waits_ms_per_step
    never_waits = waits < _HARDLY * step_ms(m) if waits is not None else not m.syncs
    if never_waits and idle_ms(m) - phase_ms(m, "loader") > _HOST_IS_THE_LIMIT * step_ms(m):
        return computing
    if m.profile.host_ms_per_step is not None:
        return PROFILED_HOST * max(0.0, m.profile.host_ms_per_step - host_phase_ms(m, "loader"))
    return _US_PER_KERNEL / 1e3 * (m.profile.kernels_per_step or 0.0)


def host_phase_ms(m: Measurement, phase: str) -> float:
    """A phase on the host's clock; where the host's clock is the only one, the same as ``phase_ms``."""
    return m.host_phases_ms[phase].mean if phase in m.host_phases_ms else phase_ms(m, phase)


def host_share(m: Measurement, *phases: str) -> float:
    """Of a step without the wait for data, on the host's clock."""
    whole = sum(host_phase_ms(m, phase) for phase in m.phases_ms if phase != "loader")
    return sum(host_phase_ms(m, phase) for phase in phases) / whole if whole else 0.0


def likely_saved(m: Measurement, expected: Less, least: Less, most: Less) -> Saved:
    """What the model says that a practice saves, for its usual effect and for the smallest and largest seen."""
    model = step_model(m)
    low, middle, high = (model.saved_ms(less) for less in (least, expected, most))
    return Saved(middle, min(low, middle), max(high, middle))


def share_saved(ms: float, shares: Shares) -> Saved:
    """Shares of a time that nothing else in the step hides, such as the wait for a loader."""
    return Saved(*(share * ms for share in shares))

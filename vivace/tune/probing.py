"""Why does the GPU wait? Short runs with one cost taken away each tell data, host and communication apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from vivace.practices.engine.new_shapes import often_new
from vivace.practices.engine.pricing import busy_ms, idle_ms, on_gpu, phase_ms, step_ms
from vivace.practices.engine.probed import Probed
from vivace.records.measurement import Measurement
from vivace.records.trial import Outcome, Trial

__all__ = ["Cause", "Causes", "RunProbe", "probe", "probes_for"]

_IDLE_SHARE = 0.10
_WAIT_SHARE = 0.05
_LAUNCH_BOUND = 1.3  # twice the batch takes less than this many times as long: the host was the limit

RunProbe = Callable[[str], Trial]


@dataclass(frozen=True)
class Cause:
    """``says`` for a person; ``exposed_ms`` of a step by the difference of two runs."""

    name: str
    exposed_ms: float
    says: str


@dataclass(frozen=True)
class Causes:
    """What differential runs showed: ``told``, the costliest first, and the step times themselves."""

    told: tuple[Cause, ...] = ()
    probed: Probed = field(default_factory=Probed)


def probes_for(m: Measurement) -> tuple[str, ...]:
    """Which differential runs are worth their time."""
    wanted = []
    waits = phase_ms(m, "loader") > _WAIT_SHARE * step_ms(m)
    idles = on_gpu(m) and idle_ms(m) > _IDLE_SHARE * step_ms(m)
    if m.loaders and (waits or idles or often_new(m)):
        wanted.append("probe:same_batch")
    if m.loaders and idles:
        wanted.append("probe:double_batch")
    communication = phase_ms(m, "communication") > _WAIT_SHARE * step_ms(m)
    wraps = any(w.name == "DistributedDataParallel" for w in m.structure.wrappers)
    if wraps and (communication or (m.gradient_syncs or 0) > 1):
        wanted.append("probe:no_gradient_sync")
    return tuple(wanted)


def probe(m: Measurement, run: RunProbe) -> Causes:
    """Run what is worth running. A probe that fails tells nothing."""
    told: list[Cause] = []
    probed = Probed()
    for word in probes_for(m):
        trial = run(word)
        if trial.outcome is not Outcome.OK or trial.measurement is None:
            continue
        took = step_ms(trial.measurement)
        if word == "probe:same_batch":
            probed = replace(probed, same_batch_ms=took * _grown(m, trial.measurement))
            told += _data(m, probed.same_batch_ms or took)
        elif word == "probe:double_batch":
            told += _launches(m, probed.same_batch_ms or step_ms(m), took * _grown(m, trial.measurement, 2.0))
        else:
            probed = replace(probed, no_gradient_sync_ms=took)
            told += _communication(m, took)
    return Causes(tuple(sorted(told, key=lambda cause: -cause.exposed_ms)), probed)


def _grown(m: Measurement, other: Measurement, times: float = 1.0) -> float:
    """How much more work a mean batch is than the one that was repeated, at least 1: the first may be a short one.

    Work grows with the number of elements, and where there is attention with its square.
    """
    has_attention = bool(m.structure.attention or m.structure.softmax_squares)
    here = m.inputs.squares if has_attention else m.inputs.elements
    there = other.inputs.squares if has_attention else other.inputs.elements
    if not m.inputs_vary or not here or not there:
        return 1.0
    return max(1.0, here * (times * times if has_attention else times) / there)


def _data(m: Measurement, took: float) -> list[Cause]:
    saved = step_ms(m) - took
    if saved < _WAIT_SHARE * step_ms(m):
        return []
    costs = "loading and new shapes cost" if m.inputs_vary else "loading costs"
    says = f"with the same batch again a step takes {took:.1f} ms, not {step_ms(m):.1f}: {costs} {saved:.1f} ms"
    return [Cause("data", saved, says)]


def _launches(m: Measurement, single: float, double: float) -> list[Cause]:
    busy = busy_ms(m)
    if busy is None or double > _LAUNCH_BOUND * single:
        return []
    says = (
        f"twice the batch takes {double / single:.2f} times as long: the host cannot launch work as fast as the GPU "
        "does it (compile=reduce-overhead, a larger batch, fewer and larger operators)"
    )
    return [Cause("launch", max(0.0, single - busy), says)]


def _communication(m: Measurement, took: float) -> list[Cause]:
    saved = step_ms(m) - took
    if saved < _WAIT_SHARE * step_ms(m):
        return []
    return [Cause("communication", saved, f"without gradient exchange a step takes {took:.1f} ms, {saved:.1f} less")]

"""Why does the GPU wait? Short runs with one cost taken away each tell data, host and communication apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vivace.practices.engine.pricing import busy_ms, idle_ms, on_gpu, phase_ms, step_ms
from vivace.records.measurement import Measurement
from vivace.records.trial import Trial

__all__ = ["Cause", "RunProbe", "probe", "probes_for"]

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


def probes_for(m: Measurement) -> tuple[str, ...]:
    """Which differential runs are worth their time."""
    wanted = []
    waits = phase_ms(m, "loader") > _WAIT_SHARE * step_ms(m)
    idles = on_gpu(m) and idle_ms(m) > _IDLE_SHARE * step_ms(m)
    if m.loaders and (waits or idles):
        wanted.append("probe:same_batch")
    if m.loaders and idles:
        wanted.append("probe:double_batch")
    communication = phase_ms(m, "communication") > _WAIT_SHARE * step_ms(m)
    if communication and any(w.name == "DistributedDataParallel" for w in m.structure.wrappers):
        wanted.append("probe:no_gradient_sync")
    return tuple(wanted)


def probe(m: Measurement, run: RunProbe) -> tuple[Cause, ...]:
    """Run what is worth running. The causes, the costliest first; a probe that fails tells nothing."""
    causes = []
    same: float | None = None
    for word in probes_for(m):
        trial = run(word)
        if trial.outcome != "ok" or trial.measurement is None:
            continue
        took = step_ms(trial.measurement)
        if word == "probe:same_batch":
            same = took
            causes += _data(m, took)
        elif word == "probe:double_batch":
            causes += _launches(m, same or step_ms(m), took)
        else:
            causes += _communication(m, took)
    return tuple(sorted(causes, key=lambda cause: -cause.exposed_ms))


def _data(m: Measurement, took: float) -> list[Cause]:
    saved = step_ms(m) - took
    if saved < _WAIT_SHARE * step_ms(m):
        return []
    says = f"with the same batch again a step takes {took:.1f} ms, not {step_ms(m):.1f}: loading costs {saved:.1f} ms"
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

"""From the steps that were sampled to those that were timed. Pure.

Waiting for data, for ranks and for copies is timed in both, so those lines are scaled to what the timed steps waited.
It is known in both how long the thread had no core. What is left of a sampled step is scaled to what is left of a timed
one, up by a tenth at most: what the timed steps took beyond that was not seen, and is not explained.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from vivace.protocol.sampling import SeenLine, SeenSampling

__all__ = ["EXACT", "Scaled", "Timed", "scaled"]

EXACT = ("loader", "communication", "copy")
VALIDATION = "validation"
_MOST = 1.1
_LEAST = 0.9  # the work of a step is the same: what a thread waits for a core cannot be most of it


@dataclass(frozen=True)
class Timed:
    """Means of the timed steps, in milliseconds. ``no_core_ms``: None where the system does not tell."""

    step_ms: float
    phases_ms: dict[str, float] = field(default_factory=dict)
    no_core_ms: float | None = None
    waiting_for_ranks_ms: float | None = None


@dataclass(frozen=True)
class Scaled:
    """Milliseconds of a timed step. Lines are without the time in which there was no core."""

    lines: list[SeenLine]
    gc_ms: float
    no_core_ms: float
    why_not_all: str | None


def scaled(timed: Timed, seen: SeenSampling) -> Scaled:
    inside = [line for line in seen.lines if line.phase != VALIDATION]
    exact = [line for phase in EXACT for line in _exact(timed.phases_ms.get(phase, 0.0), phase, inside)]
    rest = [line for line in inside if line.phase not in EXACT]
    rest_ms = max(0.0, timed.step_ms - sum(line.ms for line in exact))
    told = _no_core_ms(timed, inside, rest, rest_ms)
    sampled = seen.step_ms - sum(line.ms for line in inside if line.phase in EXACT)
    if timed.no_core_ms is not None:
        rest = [_without_no_core(line) for line in rest]
        sampled -= sum(line.no_core_ms for line in inside if line.phase not in EXACT)
    sampled = max(sampled, sum(line.ms for line in rest) + seen.gc_ms)
    no_core = min(told, max(0.0, rest_ms - _LEAST * sampled))
    factor = min(_MOST, (rest_ms - no_core) / sampled) if sampled > 0 else 0.0
    return Scaled(
        [*exact, *(_times(line, factor) for line in rest)],
        factor * seen.gc_ms,
        no_core,
        _why(rest_ms - no_core, sampled),
    )


def _exact(timed_ms: float, phase: str, lines: list[SeenLine]) -> list[SeenLine]:
    here = [line for line in lines if line.phase == phase]
    sampled = sum(line.ms for line in here)
    if sampled > 0:
        return [_times(line, timed_ms / sampled) for line in here]
    return [SeenLine(phase=phase, ms=timed_ms)] if timed_ms > 0 else []


def _no_core_ms(timed: Timed, inside: list[SeenLine], rest: list[SeenLine], rest_ms: float) -> float:
    """In the rest of a step: a wait for data is one, whether or not a core was free at its end."""
    every, here = (sum(line.no_core_ms for line in lines) for lines in (inside, rest))
    share = here / every if every else 1.0
    return min(rest_ms, share * (timed.no_core_ms or 0.0))


def _without_no_core(line: SeenLine) -> SeenLine:
    waiting = max(0.0, line.waiting_ms - line.no_core_ms)
    return replace(line, ms=max(0.0, line.ms - line.no_core_ms), waiting_ms=waiting, no_core_ms=0.0)


def _times(line: SeenLine, factor: float) -> SeenLine:
    return replace(line, ms=factor * line.ms, waiting_ms=factor * line.waiting_ms, no_core_ms=factor * line.no_core_ms)


def _why(timed_ms: float, sampled_ms: float) -> str | None:
    if timed_ms <= _MOST * sampled_ms:
        return None
    return (
        f"the timed steps took {timed_ms:.1f} ms, those that were sampled {sampled_ms:.1f} ms, both without waits for "
        "data, ranks or a core: something rare, or something else on this machine, slowed the timed ones down"
    )

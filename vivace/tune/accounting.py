"""Does the verdict account for the time? What a run lost, less what the findings explain of it.

Pure. Lost is the time in which the GPU had nothing to do, and what a differential run got rid of. A finding explains
the part of it that it could remove at most. What is left is said, with what is known about it: a job is called tuned
only where little is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from vivace.practices.engine.pricing import allocator_ms, idle_ms, on_gpu, phase_ms, step_ms
from vivace.practices.engine.registry import get_practice
from vivace.records.finding import Finding, Unexplained
from vivace.records.measurement import Measurement
from vivace.records.waits import waits_in_words
from vivace.tune.diagnosis import idle_together
from vivace.tune.probing import Cause

__all__ = ["UNEXPLAINED_SHARE", "unexplained_time"]

# Of a step: above the few per cent by which a short differential run differs from a longer one by chance.
UNEXPLAINED_SHARE = 0.10
_WORTH_A_WORD = 0.02  # of a step
_LINES = 3


def unexplained_time(m: Measurement, findings: Sequence[Finding], causes: Sequence[Cause]) -> Unexplained | None:
    """None where no more than ``UNEXPLAINED_SHARE`` of the step is left unexplained."""
    step = step_ms(m)
    if step <= 0:
        return None
    exposed = {cause.name: cause.exposed_ms for cause in causes}
    data = exposed.get("data", phase_ms(m, "loader"))
    idle = max(0.0, idle_ms(m) - data)  # what it waits for batches is idle time too
    communication = exposed.get("communication", 0.0)
    not_seen = m.ledger.unexplained_ms if m.ledger is not None else 0.0
    left = (
        not_seen
        + max(0.0, data - _explained_data(findings, m.inputs_vary))
        + max(0.0, idle - _explained_idle(findings))
        + max(0.0, communication - _explained_communication(findings))
    )
    left = min(left, step)
    if left <= UNEXPLAINED_SHARE * step:
        return None
    return Unexplained(ms=left, step_ms=step, share=left / step, known=tuple(_known(m, causes)))


def _explained_data(findings: Sequence[Finding], shapes_vary: bool) -> float:
    """Fixes of the loader, and lines, act on different parts of a wait; fixes of what new shapes cost all act on the
    same."""
    loading = sum(f.exposed_ms for f in findings if get_practice(f.practice).family in ("loader", "host"))
    shapes = max((f.exposed_ms for f in findings if get_practice(f.practice).for_new_shapes), default=0.0)
    return loading + (shapes if shapes_vary else 0.0)


def _explained_idle(findings: Sequence[Finding]) -> float:
    return idle_together([(finding, finding.idle_ms) for finding in findings])


def _explained_communication(findings: Sequence[Finding]) -> float:
    return max((f.exposed_ms for f in findings if f.practice.startswith("ddp_")), default=0.0)


def _known(m: Measurement, causes: Sequence[Cause]) -> list[str]:
    return [*(cause.says for cause in causes), *_idle(m), *_ledger(m), *_shapes(m), *_allocator(m), *_syncs(m)]


def _ledger(m: Measurement) -> list[str]:
    """Why the ledger does not name all of the step."""
    return [m.ledger.why_unexplained] if m.ledger is not None and m.ledger.why_unexplained else []


def _idle(m: Measurement) -> list[str]:
    idle, step = idle_ms(m), step_ms(m)
    if not on_gpu(m) or idle <= _WORTH_A_WORD * step:
        return []
    parts = waits_in_words(m.profile.idle_during_ms, idle) if m.profile is not None else []
    waits = f"; it waits {', '.join(parts)}" if parts else ""
    return [f"the GPU has nothing to do for {idle:.1f} of {step:.1f} ms{waits}"]


def _shapes(m: Measurement) -> list[str]:
    if not m.inputs_vary or not m.inputs.repeats:
        return []
    steps = sum(m.inputs.repeats)
    text = f"inputs had {len(m.inputs.repeats)} shapes in {steps} steps, {m.inputs.new} of them never seen before"
    autotuner = " while cuDNN's autotuner is on" if m.origin.flags.get("cudnn_benchmark") else ""
    return [text + autotuner]


def _allocator(m: Measurement) -> list[str]:
    calls = m.allocator.device_allocs if m.allocator is not None else None
    if not calls or m.allocator is None:
        return []
    cost = allocator_ms(m)
    text = f"the allocator asked the driver for memory {calls / max(1, m.allocator.steps):.1f} times per step"
    return [text + (f", {cost:.1f} ms on the host" if cost else "")]


def _syncs(m: Measurement) -> list[str]:
    lines = [f"{sync.file.rsplit('/', 1)[-1]}:{sync.line} `{sync.code}`" for sync in m.syncs if sync.per_step >= 0.5]
    return [f"the host waits for the GPU at {'; '.join(lines[:_LINES])}"] if lines else []

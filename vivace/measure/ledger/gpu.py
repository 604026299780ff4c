"""The ledger of a job on a GPU: kernels at their limit and beyond it, then what the GPU waits for, by line.

The GPU's clock gives the step; the profiler window gives the kernels' time, which the profiler hardly changes, and the
shares of the idle time, which it does change. So kernels are taken as they are, and what is left of the timed step is
idle time, divided by those shares. Only recorded and written traces have tested this: see docs/ledger.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from vivace.measure.ledger.causes import cause_of, to_do
from vivace.measure.ledger.rows import Sums, rows_of
from vivace.measure.ledger.scaling import Timed
from vivace.protocol.sampling import SeenLine, SeenSampling
from vivace.records.ledger import CAUSES, Cause, Ledger, Row
from vivace.records.measurement import Profile

__all__ = ["gpu_ledger"]

_PRODUCTS = ("matmul", "convolution", "attention", "recurrent")
_NAMES = {"matmul": "matrix multiplication", "norm": "normalisation", "layout": "changes of layout"}
_BY_WAIT = {
    "loader": Cause.DATA, "allocator": Cause.ALLOCATOR, "copy": Cause.COPIES, "communication": Cause.RANKS,
    "sync": Cause.DISPATCH, "forward": Cause.DISPATCH, "backward": Cause.DISPATCH, "optimizer": Cause.DISPATCH,
    "stall": Cause.HOST, "other": Cause.HOST,
}  # fmt: skip
_DEVICE = "device"


def gpu_ledger(timed: Timed, profile: Profile, limit_ms: float | None, seen: SeenSampling | None) -> Ledger | None:
    """``limit_ms``: what the counted products take at the GPU's dense peak; None where a peak is not known."""
    busy = _busy_ms(timed.step_ms, profile)
    if busy is None:
        return None
    rows = [*_work(profile, busy, limit_ms), *_idle(timed.step_ms - busy, profile, seen)]
    left = timed.step_ms - sum(row.ms for row in rows)
    return Ledger(
        step_ms=timed.step_ms,
        rows=tuple(sorted((row for row in rows if row.ms > 0), key=lambda row: -row.ms)),
        unexplained_ms=max(0.0, left),
    )


def _busy_ms(step_ms: float, profile: Profile) -> float | None:
    """What runs beside something else counts once."""
    share, idle = profile.busy_share, profile.idle_ms_per_step
    if share is None or not profile.roles_ms:
        return None
    one_by_one = sum(profile.roles_ms.values()) + sum(copy.ms_per_step for copy in profile.copies)
    together = idle * share / (1 - share) if idle and share < 1 else one_by_one
    return min(step_ms, one_by_one, together)


def _work(profile: Profile, busy_ms: float, limit_ms: float | None) -> list[Row]:
    exposed = min(busy_ms, profile.communication_exposed_ms_per_step or 0.0)
    kinds = {role: ms for role, ms in profile.roles_ms.items() if role != "communication"}
    copies = sum(copy.ms_per_step for copy in profile.copies)
    factor = (busy_ms - exposed) / (sum(kinds.values()) + copies) if kinds or copies else 0.0
    products = factor * sum(kinds.get(role, 0.0) for role in _PRODUCTS)
    rows = [
        Row(cause=Cause.KERNELS, name=_NAMES.get(role, role), ms=factor * ms)
        for role, ms in kinds.items()
        if role not in _PRODUCTS or limit_ms is None
    ]
    if limit_ms is not None and products > 0:
        at_limit = min(products, limit_ms)
        rows += [
            Row(cause=Cause.LIMIT, name="products, at the GPU's limit", ms=at_limit),
            Row(cause=Cause.BEYOND, name="products, beyond that limit", ms=products - at_limit),
        ]
    rows.append(Row(cause=Cause.COPIES, name=CAUSES[Cause.COPIES], ms=factor * copies))
    rows.append(Row(cause=Cause.EXCHANGE, name=CAUSES[Cause.EXCHANGE], ms=exposed))
    return rows


def _idle(idle_ms: float, profile: Profile, seen: SeenSampling | None) -> list[Row]:
    if seen is not None and seen.idle:
        return _by_line(idle_ms, seen)
    return _by_wait(idle_ms, profile.idle_during_ms)


def _by_line(idle_ms: float, seen: SeenSampling) -> list[Row]:
    """Each gap belongs to the line that the host was in before it launched what ended the gap."""
    total = sum(line.ms for line in seen.idle)
    sums = Sums()
    for line in seen.idle:
        ms = idle_ms * line.ms / total if total else 0.0
        whose = SeenLine(**{**line.__dict__, "work": "", "ms": ms})
        cause = Cause.LATENCY if line.work == _DEVICE else cause_of(whose, launches=False, operators_seen=True)
        sums.add(Cause.RANKS if cause is Cause.EXCHANGE else cause, whose)
    return rows_of(sums, idle_ms)


def _by_wait(idle_ms: float, during_ms: Mapping[str, float]) -> list[Row]:
    """Where no stack was sampled: the part of the step that the host was in."""
    total = sum(during_ms.values())
    by_cause: dict[Cause, float] = defaultdict(float)
    for name, ms in during_ms.items():
        by_cause[_BY_WAIT.get(name, Cause.HOST)] += idle_ms * ms / total if total else 0.0
    return [Row(cause=c, name=CAUSES[c], ms=ms, to_do=to_do(c, ms, 0.0)) for c, ms in by_cause.items()]

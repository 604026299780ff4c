"""Which gaps between kernels is the host to blame for? Pure: a trace's events in, intervals out.

A gap ends when a kernel starts. Where the host launched it only after the gap had begun, the host was late: from then
until its launch, whatever it did held the GPU up. Where it had launched it before, the GPU waits for itself (another
stream, a copy, its own latency), and no line of the script is charged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from vivace.measure.inside.profiling.idle import union

__all__ = ["DEVICE", "HOST_LATE", "Gap", "host_gaps"]

HOST_LATE = "host late"
DEVICE = "device"
_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_CALLS = ("cuda_runtime", "cuda_driver")


class Gap(NamedTuple):
    """In the trace's microseconds. ``whose``: ``HOST_LATE`` or ``DEVICE``."""

    start: float
    stop: float
    whose: str


def host_gaps(events: Iterable[dict[str, Any]]) -> list[Gap]:
    events = [event for event in events if event.get("ph") == "X"]
    work = [event for event in events if event.get("cat") in _WORK]
    launches = {_correlation(e): float(e["ts"]) + float(e["dur"]) for e in events if e.get("cat") in _CALLS}
    first_at = {float(event["ts"]): event for event in work}
    busy = union((float(event["ts"]), float(event["ts"]) + float(event["dur"])) for event in work)
    gaps: list[Gap] = []
    for before, after in zip(busy, busy[1:]):
        start, stop = before[1], after[0]
        launched = launches.get(_correlation(first_at[stop]))
        if launched is None:  # nothing tells who launched it
            continue
        late = min(stop, max(start, launched))
        gaps += [Gap(a, b, whose) for a, b, whose in ((start, late, HOST_LATE), (late, stop, DEVICE)) if b > a]
    return gaps


def _correlation(event: dict[str, Any]) -> Any:
    return event.get("args", {}).get("correlation")

"""What does the host do while the GPU has nothing to do? Pure: intervals in, milliseconds out.

Every gap between kernels is charged to what the host was in at that moment: the wait for a batch, a call of the
allocator, a copy, the time after a synchronisation (the host had queued nothing ahead), or the launching of a forward,
a backward or an optimizer step; where it launches nothing for a millisecond and more, it is stalled. The parts add up
to the idle time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = [
    "ALLOCATING", "Interval", "idle_during", "intersection", "length", "overlap", "phases_of", "subtract", "union",
]  # fmt: skip

Interval = tuple[float, float]

ALLOCATING = ("cudamalloc", "cudafree", "cumemcreate", "cumemmap", "cumemrelease", "cumemunmap", "cumemsetaccess")
_PHASES = {
    "data": "loader", "wait": "loader", "copy": "copy", "fwd": "forward", "bwd": "backward", "comm": "communication",
    "opt": "optimizer",
}  # fmt: skip
_ORDER = ("loader", "allocator", "copy", "sync", "stall", "communication", "forward", "backward", "optimizer")
_LAUNCHING = ("forward", "backward", "optimizer")
_STALL_US = 1000.0  # without a call into CUDA, in a phase that launches: between two launches it takes tens
_AFTER_SYNC_US = 20.0  # a synchronisation returns so long after the last kernel ended


def idle_during(
    gaps: Sequence[Interval], phases: dict[str, list[Interval]], calls: Iterable[dict[str, Any]]
) -> dict[str, float]:
    """Milliseconds of the gaps by what the host was in. ``phases`` and ``calls`` in the gaps' own clock, microseconds;
    ``calls`` as the trace has them."""
    calls = list(calls)
    layers = dict(phases)
    layers["allocator"] = [_span(call) for call in calls if call["name"].lower().startswith(ALLOCATING)]
    syncs = [_span(call) for call in calls if "synchronize" in call["name"].lower()]
    layers["sync"] = [gap for gap in gaps if any(a <= gap[0] <= b + _AFTER_SYNC_US for a, b in syncs)]
    layers["stall"] = _stalls(gaps, layers, calls)
    rest = union(gaps)
    found: dict[str, float] = {}
    for name in _ORDER:
        spans = union(layers.get(name, ()))
        found[name] = overlap(rest, spans) / 1e3
        rest = subtract(rest, spans)
    found["other"] = length(rest) / 1e3
    return {name: ms for name, ms in found.items() if ms > 0}


def _stalls(
    gaps: Sequence[Interval], layers: dict[str, list[Interval]], calls: Sequence[dict[str, Any]]
) -> list[Interval]:
    """Where the host should launch and makes no call for long: it does not run, or something else holds Python."""
    launching = union(span for name in _LAUNCHING for span in layers.get(name, ()))
    quiet = subtract(intersection(union(gaps), launching), union(map(_span, calls)))
    return [span for span in quiet if span[1] - span[0] > _STALL_US]


def phases_of(marks: Sequence[tuple[str, float]]) -> dict[str, list[Interval]]:
    """Where the host was between the marks of the recorder, ``(code, time)`` each: the innermost phase counts."""
    spans: dict[str, list[Interval]] = defaultdict(list)
    stack: list[str] = []
    previous: float | None = None
    for code, now in marks:
        if previous is not None and stack and now > previous:
            spans[stack[-1]].append((previous, now))
        previous = now
        if code.endswith("+"):
            stack.append(_PHASES[code[:-1]])
        elif code.endswith("-") and stack:
            stack.pop()
        elif code == "bwd=" and stack:
            stack[-1] = "communication"
    return dict(spans)


def union(spans: Iterable[Interval]) -> list[Interval]:
    """Merge overlapping intervals; the result is sorted and disjoint."""
    merged: list[Interval] = []
    for start, stop in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return merged


def length(spans: Iterable[Interval]) -> float:
    return sum(stop - start for start, stop in spans)


def overlap(first: list[Interval], second: list[Interval]) -> float:
    """Time covered by both; each list sorted and disjoint."""
    total, i, j = 0.0, 0, 0
    while i < len(first) and j < len(second):
        total += max(0.0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
        if first[i][1] <= second[j][1]:
            i += 1
        else:
            j += 1
    return total


def intersection(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """What both cover; each list sorted and disjoint."""
    return subtract(first, subtract(first, second))


def subtract(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """What ``first`` covers and ``second`` does not; each list sorted and disjoint."""
    left: list[Interval] = []
    j = 0
    for start, stop in first:
        while j < len(second) and second[j][1] <= start:
            j += 1
        at, k = start, j
        while k < len(second) and second[k][0] < stop:
            if second[k][0] > at:
                left.append((at, second[k][0]))
            at = max(at, second[k][1])
            k += 1
        if at < stop:
            left.append((at, stop))
    return left


def _span(call: dict[str, Any]) -> Interval:
    return float(call["ts"]), float(call["ts"]) + float(call["dur"])

"""NCCL's kernels by the dimension of the layout that they talk over: calls, bytes, time, and what no computation hides.

An instant at which several dimensions talk is shared between them in equal parts, so that times add up to those of all
communication. Pure: the trace's events in, facts out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vivace.measure.inside.groups import dimension
from vivace.measure.inside.profiling.idle import Interval, union

__all__ = ["by_dimension", "shared_us"]

_BYTES = {
    "float": 4, "float32": 4, "int": 4, "double": 8, "float64": 8, "long": 8, "int64": 8, "half": 2, "float16": 2,
    "bfloat16": 2, "short": 2, "char": 1, "byte": 1, "bool": 1, "uint8": 1, "int8": 1,
}  # fmt: skip
_UNKNOWN = "unknown"


def by_dimension(
    kernels: Sequence[tuple[dict[str, Any], Interval]], computing: Sequence[Interval], steps: int, world: int
) -> list[dict[str, Any]]:
    """``kernels`` are NCCL's. The profiler names their groups only where it records the host's operators, too."""
    found: dict[str, list[dict[str, Any]]] = {}
    spans: dict[str, list[Interval]] = {}
    for event, span in kernels:
        over = _dimension(event.get("args", {}), world)
        found.setdefault(over, []).append(event.get("args", {}))
        spans.setdefault(over, []).append(span)
    us, exposed_us = shared_us(spans, computing)
    return [
        {
            "dimension": over,
            "ranks": max((int(args.get("Group size") or 0) for args in found[over]), default=0) or None,
            "calls_per_step": len(found[over]) / steps,
            "mib_per_step": sum(map(_bytes, found[over])) / 2**20 / steps,
            "ms_per_step": us[over] / 1e3 / steps,
            "exposed_ms_per_step": exposed_us[over] / 1e3 / steps,
        }
        for over in sorted(found, key=lambda over: -exposed_us[over])
    ]


def _dimension(args: dict[str, Any], world: int) -> str:
    if not args.get("Group size"):
        return _UNKNOWN
    return dimension(str(args.get("Process Group Description") or ""), int(args["Group size"]), world)


def _bytes(args: dict[str, Any]) -> int:
    """The whole tensor: what is gathered, or reduced."""
    elements = max(int(args.get("In msg nelems") or 0), int(args.get("Out msg nelems") or 0))
    return elements * _BYTES.get(str(args.get("dtype") or "").lower(), 0)


def shared_us(
    spans: dict[str, list[Interval]], computing: Sequence[Interval]
) -> tuple[dict[str, float], dict[str, float]]:
    """Time of each, and the part of it without computing.

    >>> shared_us({"data": [(0, 10)], "tensor": [(6, 8)]}, [(0, 4)])
    ({'data': 9.0, 'tensor': 1.0}, {'data': 5.0, 'tensor': 1.0})
    """
    edges: list[tuple[float, str | None, int]]
    edges = [(at, over, turn) for over, own in spans.items() for a, b in union(own) for at, turn in ((a, 1), (b, -1))]
    edges += [(at, None, turn) for a, b in union(computing) for at, turn in ((a, 1), (b, -1))]
    whole, exposed = dict.fromkeys(spans, 0.0), dict.fromkeys(spans, 0.0)
    active: set[Any] = set()
    previous = 0.0
    for at, over, turn in sorted(edges, key=lambda edge: edge[0]):
        talking = active - {None}
        for one in talking:
            whole[one] += (at - previous) / len(talking)
            exposed[one] += (at - previous) / len(talking) if None not in active else 0.0
        previous = at
        (active.add if turn > 0 else active.discard)(over)
    return whole, exposed

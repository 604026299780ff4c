"""Does a series of steps rise steadily? The median of all pairwise slopes (Theil and Sen), and both halves must agree.

One jump, a first fill or a few slow steps leave the median alone. With 256 KiB a step it is exact after ten steps;
below 64 KiB it takes eighty (measured with a prototype). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median

from vivace.protocol.over_time import SeenCompiling, SeenMemorySeries
from vivace.records.over_time import Compiled, GraphBreak, MemoryGrowth, OverTime
from vivace.records.privacy import safe_text

__all__ = ["over_time", "rise"]

_FEWEST = 6
_RISING = 0.8  # of all pairs
_AGREE = 0.4  # of the whole slope, in each half
_SMALLEST_MIB = 0.25  # a step: allocators give and take as much
_SMALLEST_SLOWING = 0.1  # of the median step, over the window
_MOST_POINTS = 200


def rise(steps: Sequence[float], values: Sequence[float]) -> float | None:
    """Per step; None where there is no steady rise.

    >>> rise(range(10), [5.0 + 2 * n for n in range(10)])
    2.0
    >>> rise(range(10), [5.0] * 5 + [90.0] * 5) is None
    True
    """
    every = max(1, len(values) // _MOST_POINTS)
    points = list(zip(steps, values, strict=True))[::every]
    if len(points) < _FEWEST:
        return None
    slopes = _slopes(points)
    middle = len(points) // 2
    whole = median(slopes)
    halves = [median(_slopes(part)) for part in (points[:middle], points[middle:])]
    rising = sum(slope > 0 for slope in slopes) >= _RISING * len(slopes)
    return whole if whole > 0 and rising and min(halves) > _AGREE * whole else None


def _slopes(points: Sequence[tuple[float, float]]) -> list[float]:
    return [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if b[0] != a[0]]


def over_time(
    steps_ms: Sequence[float], host: SeenMemorySeries | None, gpu: SeenMemorySeries | None, seen: SeenCompiling | None
) -> OverTime | None:
    """None where nothing changes."""
    growth = [one for one in (_growth("host", host), _growth("gpu", gpu)) if one is not None]
    slower = rise(range(len(steps_ms)), steps_ms) if steps_ms else None
    if slower is not None and slower * len(steps_ms) < _SMALLEST_SLOWING * median(steps_ms):
        slower = None
    compiled = (
        tuple(Compiled(**{**one.__dict__, "reason": safe_text(one.reason)}) for one in seen.compiled) if seen else ()
    )
    breaks = tuple(GraphBreak(**one.__dict__) for one in seen.breaks) if seen else ()
    if not growth and slower is None and not compiled and not breaks:
        return None
    reasons = tuple(safe_text(text) for text in seen.reasons) if seen else ()
    return OverTime(
        growth=tuple(growth), slower_ms_per_step=slower, compiled=compiled, breaks=breaks, break_reasons=reasons
    )


def _growth(kind: str, series: SeenMemorySeries | None) -> MemoryGrowth | None:
    slope = rise(series.steps, series.mib) if series is not None else None
    if series is None or slope is None or slope < _SMALLEST_MIB:
        return None
    left = int(series.free_mib / slope) if series.free_mib is not None else None
    return MemoryGrowth(kind="gpu" if kind == "gpu" else "host", mib_per_step=slope, steps_left=left)

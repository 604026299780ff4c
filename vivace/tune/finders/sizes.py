"""Which batch size to run next, and which to recommend: pure rules over what was run. No process, no file.

Doubling from the script's own size until one does not fit or the throughput falls; then halving the gap between the
largest that leaves the margin and the smallest that does not, down to an eighth of the size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vivace.records.search import BatchTried
from vivace.records.trial import Outcome

__all__ = ["KNEE_SHARE", "Next", "fits", "knee", "largest", "next_size"]

KNEE_SHARE = 0.95  # of the best throughput
_FALLS_TO = 0.95  # of the best throughput: larger ones are not tried
_FINEST = 8  # the gap that is left, as a fraction of the size


@dataclass(frozen=True)
class Next:
    """The size to run, or why there is none."""

    size: int | None
    why: str = ""


def fits(tried: BatchTried, margin_gib: float) -> bool:
    """It trained and left the margin; where the room is not known, that it trained must do."""
    return tried.trained and (tried.margin_gib is None or tried.margin_gib >= margin_gib)


def lacks_memory(tried: BatchTried, margin_gib: float) -> bool:
    return tried.outcome is Outcome.OUT_OF_MEMORY or (tried.trained and not fits(tried, margin_gib))


def next_size(tried: Sequence[BatchTried], start: int, margin_gib: float, values: Sequence[int] | None = None) -> Next:
    """``values``: only these, the smallest first, up to the first that runs out of memory."""
    known = {one.size: one for one in tried}
    if values is not None:
        return _next_of(values, known)
    good = [size for size, one in known.items() if fits(one, margin_gib)]
    bad = {size: one for size, one in known.items() if size not in good}
    if not good:
        smallest = min(known, default=2 * start)
        return Next(smallest // 2) if smallest > 1 else Next(None, "not even a batch of one leaves the margin")
    low = max(good)
    above = [size for size in bad if size > low]
    if not above:
        return _double(known, low)
    high = min(above)
    if not lacks_memory(bad[high], margin_gib):
        return Next(None, f"{high} did not train, and not for lack of memory ({_reason(bad[high])})")
    gap = max(1, low // _FINEST)
    if high - low <= gap:
        return Next(None, f"{low} leaves the margin and {high} does not")
    return Next(_between(low, high, gap))


def _reason(tried: BatchTried) -> str:
    return (tried.message.strip().splitlines() or [tried.outcome])[-1][:200]


def _next_of(values: Sequence[int], known: dict[int, BatchTried]) -> Next:
    for size in sorted(values):
        if size not in known:
            return Next(size)
        if known[size].outcome is Outcome.OUT_OF_MEMORY:
            return Next(None, f"{size} ran out of memory: larger ones were not run")
    return Next(None, "all the values were run")


def _double(known: dict[int, BatchTried], low: int) -> Next:
    best = max(one.samples_per_s or 0.0 for one in known.values())
    if (known[low].samples_per_s or 0.0) < _FALLS_TO * best:
        return Next(None, f"the throughput falls at {low}")
    return Next(2 * low)


def _between(low: int, high: int, gap: int) -> int:
    """The middle, at a multiple of the largest power of two within the gap: 96 and 112, not 97 and 113."""
    step = 1 << (gap.bit_length() - 1)
    middle = (low + high) // 2 // step * step
    return middle if low < middle < high else (low + high) // 2


def knee(tried: Iterable[BatchTried], margin_gib: float) -> int | None:
    """The smallest size within 5 % of the best throughput, among those that leave the margin."""
    good = [one for one in tried if fits(one, margin_gib)]
    best = max((one.samples_per_s or 0.0 for one in good), default=0.0)
    return min((one.size for one in good if (one.samples_per_s or 0.0) >= KNEE_SHARE * best), default=None)


def largest(tried: Iterable[BatchTried], margin_gib: float) -> int | None:
    return max((one.size for one in tried if fits(one, margin_gib)), default=None)

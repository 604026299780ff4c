"""Whom is each nanosecond charged to? Pure: samples, collections and spans in, sums by stack, phase and work out.

All of the time since the sample before goes to the line of this one. Python looks for signals right after a call, so a
sample that comes late lands on the line that kept it waiting. Counting samples, or charging the line before, puts half
of the time on innocent lines. Only between a line that waits and one that computes, the processor's clock tells them
apart. Runs of the garbage collector that nobody asked for are taken out of the line that they happened to interrupt.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from vivace.measure.inside.lines.bytecode import asks_for_a_collection
from vivace.measure.inside.lines.samples import Collection, Sample, Stack

__all__ = ["Charged", "Charges", "Segment", "charge"]

Segment = tuple[int, int, str]
"""From, to (nanoseconds), and what: a phase, or a family of operators. Lists of them are sorted and disjoint."""

LATE = 2.0  # times the period since the sample before: something kept the interpreter from looking


@dataclass
class Charged:
    ns: int = 0
    waiting_ns: int = 0
    no_core_ns: int = 0
    late_ns: int = 0
    samples: int = 0
    by_work: dict[str, int] = field(default_factory=dict)
    """The part of it inside operators, by family."""


@dataclass
class Charges:
    lines: dict[tuple[Stack, str], Charged] = field(default_factory=dict)
    """By stack and phase."""
    gc_ns: int = 0
    gc_runs: int = 0
    own_ns: int = 0

    def of(self, stack: Stack, phase: str) -> Charged:
        return self.lines.setdefault((stack, phase), Charged())


def charge(
    samples: Sequence[Sample],
    collections: Sequence[Collection],
    began_ns: int,
    period_ns: int,
    phases: Sequence[Segment],
    operators: Sequence[Segment] = (),
) -> Charges:
    charges = Charges(own_ns=sum(sample.ended_ns - sample.began_ns for sample in samples))
    unasked = [(c.began_ns, c.ended_ns) for c in collections if not asks_for_a_collection(c.code, c.at)]
    charges.gc_runs = len(unasked)
    inside, during = _Segments(operators), _Segments(phases)
    collecting = _Segments([(start, stop, "") for start, stop in unasked])
    before: _Gap | None = None
    for previous, sample in zip([None, *samples], samples):
        start, stop = previous.ended_ns if previous is not None else began_ns, sample.began_ns
        if stop <= start:
            continue
        collected = sum(collecting.within(start, stop).values())
        charges.gc_ns += collected
        gap = _gap(previous, sample, stop - start - collected, charges.of(sample.stack, during.at(stop)))
        _charge(gap, before, inside.within(start, stop), late=stop - start > LATE * period_ns)
        before = gap
    return charges


@dataclass(frozen=True)
class _Gap:
    """The time since the sample before. ``waits``: the thread gave up its core, and waited for longer than it computed;
    a sleep or a lock, in which it computes nothing."""

    stack: Stack
    line: Charged
    ns: int
    computed_ns: int
    waiting_ns: int
    no_core_ns: int
    waits: bool


def _gap(before: Sample | None, now: Sample, ns: int, line: Charged) -> _Gap:
    if before is None:
        return _Gap(now.stack, line, ns, ns, 0, 0, waits=False)
    computed = min(ns, max(0, now.cpu_ns - before.cpu_ns))
    no_core = min(ns, max(0, now.no_core_ns - before.no_core_ns))
    blocked = now.blocked != before.blocked
    idle = ns - computed
    if not blocked:
        return _Gap(now.stack, line, ns, computed, idle, no_core, waits=False)
    # A signal wakes a sleeping thread, which then waits for a core in the middle of its sleep: that is the sleep's.
    return _Gap(now.stack, line, ns, computed, max(0, idle - no_core), 0, waits=idle - no_core > computed)


def _charge(gap: _Gap, before: _Gap | None, by_work: dict[str, int], late: bool) -> None:
    """All of it to this line; but where one of two lines waits and the other computes, to each what it does."""
    ns, waiting = gap.ns, gap.waiting_ns
    working = gap.line
    if before is not None and before.waits != gap.waits and before.stack is not gap.stack:
        moved = gap.computed_ns if gap.waits else max(0, waiting - gap.no_core_ns)
        before.line.ns += moved
        before.line.waiting_ns += 0 if gap.waits else moved
        ns, waiting = ns - moved, waiting - (0 if gap.waits else moved)
        working = before.line if gap.waits else gap.line
    gap.line.ns += ns
    gap.line.waiting_ns += waiting
    gap.line.no_core_ns += min(ns, gap.no_core_ns)
    gap.line.late_ns += ns if late else 0
    gap.line.samples += 1
    for family, spent in by_work.items():
        working.by_work[family] = working.by_work.get(family, 0) + min(gap.ns, spent)


class _Segments:
    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = segments
        self.starts = [segment[0] for segment in segments]

    def at(self, ns: int) -> str:
        """What a moment lies in. A sample is taken a little before its time is read: the end of a segment is in it."""
        place = bisect_right(self.starts, ns - 1) - 1
        return self.segments[place][2] if place >= 0 and ns <= self.segments[place][1] else ""

    def within(self, start: int, stop: int) -> dict[str, int]:
        """What is covered between two moments."""
        found: dict[str, int] = {}
        place = max(0, bisect_right(self.starts, start) - 1)
        while place < len(self.segments) and self.segments[place][0] < stop:
            a, b, what = self.segments[place]
            covered = min(b, stop) - max(a, start)
            if covered > 0:
                found[what] = found.get(what, 0) + covered
            place += 1
        return found

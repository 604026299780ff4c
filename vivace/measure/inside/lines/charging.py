"""Whom is each nanosecond charged to? Pure: samples, collections and spans in, sums by stack, phase and work out.

All of the time since the sample before goes to the line of this one. Python looks for signals right after a call, so a
sample that comes late lands on the line that kept it waiting. Counting samples, or charging the line before, puts half
of the time on innocent lines. Runs of the garbage collector that nobody asked for are taken out of the line that
they happened to interrupt.
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
    previous: Sample | None = None
    inside = _Walk(operators)
    during = _Walk(phases)
    collecting = _Walk([(start, stop, "") for start, stop in unasked])
    for sample in samples:
        start, stop = previous.ended_ns if previous is not None else began_ns, sample.began_ns
        computed = sample.cpu_ns - previous.cpu_ns if previous is not None else stop - start
        no_core = _no_core_ns(previous, sample)
        previous = sample
        if stop <= start:
            continue
        collected = sum(collecting.within(start, stop).values())
        charges.gc_ns += collected
        one = charges.lines.setdefault((sample.stack, during.at(stop)), Charged())
        ns = stop - start - collected
        one.ns += ns
        one.waiting_ns += min(ns, max(0, stop - start - computed))
        one.no_core_ns += min(ns, max(0, no_core))
        one.late_ns += ns if stop - start > LATE * period_ns else 0
        one.samples += 1
        for family, spent in inside.within(start, stop).items():
            one.by_work[family] = one.by_work.get(family, 0) + min(ns, spent)
    charges.gc_runs = len(unasked)
    return charges


def _no_core_ns(before: Sample | None, now: Sample) -> int:
    """Nothing where the thread gave up its core by itself: a signal wakes a sleeping thread, which then waits for a
    core in the middle of its sleep."""
    if before is None or now.blocked != before.blocked:
        return 0
    return now.no_core_ns - before.no_core_ns


class _Walk:
    """Asked for later and later times."""

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

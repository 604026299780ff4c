"""The ledger of a job whose clock is the host's: every sampled line has a phase, a kind of work and a cause.

The steps that were sampled are others than the timed ones. In both it is known how long the thread had no core. What is
left of a sampled step is scaled to what is left of a timed one, up by a tenth at most: what the timed steps took beyond
that was not seen, and is not explained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vivace.measure.ledger.causes import LAUNCHES, cause_of, to_do
from vivace.protocol.sampling import SeenLine, SeenSampling
from vivace.records.ledger import CAUSES, Cause, Ledger, Line, Place, Row, Sampling
from vivace.records.privacy import safe_text

__all__ = ["host_ledger"]

_MOST_SCALED = 1.1
_OF_ITS_OWN = 0.01  # of the step: a line with less joins the others
_BY_LINE = (Cause.HOST, Cause.LOGGING, Cause.SAVING, Cause.DATA)
_VALIDATION = "validation"
_LINES = 100


@dataclass
class _Sum:
    ms: float = 0.0
    waiting_ms: float = 0.0
    vias: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    place: Place | None = None

    def add(self, line: SeenLine, ms: float, waiting_ms: float) -> None:
        self.ms += ms
        self.waiting_ms += waiting_ms
        self.vias[line.via] += ms
        if self.place is None and line.file:
            self.place = _place(line)

    @property
    def via(self) -> str:
        return max(self.vias, key=lambda name: self.vias[name], default="")


def host_ledger(
    step_ms: float, seen: SeenSampling, no_core_ms: float | None = None, waiting_for_ranks_ms: float | None = None
) -> Ledger:
    """``step_ms``, ``no_core_ms``: of the timed steps; None where the system does not tell."""
    no_core = min(step_ms, no_core_ms or 0.0)
    sampled = seen.step_ms - (0.0 if no_core_ms is None else sum(line.no_core_ms for line in seen.lines))
    factor = min(_MOST_SCALED, (step_ms - no_core) / sampled) if sampled > 0 else 0.0
    inside = [line for line in seen.lines if line.phase != _VALIDATION]
    launching = _launching(inside)
    sums: dict[tuple[Cause, object], _Sum] = defaultdict(_Sum)
    for line in inside:
        cause = cause_of(line, (line.file, line.line) in launching, seen.operators_seen)
        without = line.no_core_ms if no_core_ms is not None else 0.0
        ms, waiting = line.ms - without, max(0.0, line.waiting_ms - line.no_core_ms)
        sums[cause, _key(cause, line)].add(line, factor * ms, factor * waiting)
    sums[Cause.NO_CORE, ""].add(SeenLine(), no_core, no_core)
    sums[Cause.GC, ""].add(SeenLine(), factor * seen.gc_ms, 0.0)
    rows = _rows(sums, step_ms)
    rows = _split_exchange(rows, waiting_for_ranks_ms)
    left = step_ms - sum(row.ms for row in rows)
    return Ledger(
        step_ms=step_ms,
        rows=tuple(sorted(rows, key=lambda row: -row.ms)),
        unexplained_ms=max(0.0, left),
        why_unexplained=_why(step_ms - no_core, sampled),
        outside=_outside(seen),
        lines=_lines(inside, factor, launching, seen.operators_seen),
        sampling=_sampling(seen),
    )


def _launching(lines: Iterable[SeenLine]) -> set[tuple[str, int]]:
    """Lines that spend much of their time inside operators."""
    total: dict[tuple[str, int], float] = defaultdict(float)
    inside: dict[tuple[str, int], float] = defaultdict(float)
    for line in lines:
        total[line.file, line.line] += line.ms
        inside[line.file, line.line] += line.ms if line.work else 0.0
    return {place for place, ms in total.items() if inside[place] > LAUNCHES * ms}


def _key(cause: Cause, line: SeenLine) -> object:
    if cause is Cause.OPERATORS:
        return "optimizer" if line.phase == "optimizer" else line.work or "not profiled"
    return (line.file, line.first_line, line.line) if cause in _BY_LINE else ""


def _rows(sums: dict[tuple[Cause, object], _Sum], step_ms: float) -> list[Row]:
    rows = []
    small: dict[Cause, _Sum] = defaultdict(_Sum)
    for (cause, key), one in sums.items():
        if one.ms <= 0:
            continue
        if cause in _BY_LINE and one.ms < _OF_ITS_OWN * step_ms:
            small[cause].ms += one.ms
            small[cause].waiting_ms += one.waiting_ms
            continue
        name = str(key) if cause is Cause.OPERATORS else CAUSES[cause]
        where = one.place if cause in _BY_LINE else None
        rows.append(_row(cause, name, one, where))
    rows += [_row(cause, f"{CAUSES[cause]}, each below 1 %", one, None) for cause, one in small.items()]
    return rows


def _row(cause: Cause, name: str, one: _Sum, where: Place | None) -> Row:
    waiting = min(one.ms, one.waiting_ms)
    return Row(
        cause=cause, name=name, ms=one.ms, waiting_ms=waiting, where=where, via=one.via if where else "",
        to_do=to_do(cause, one.ms, waiting),
    )  # fmt: skip


def _split_exchange(rows: Sequence[Row], waiting_ms: float | None) -> list[Row]:
    """Skew apart from transfer: what a rank waits for slower ones, measured over all ranks."""
    if not waiting_ms:
        return list(rows)
    found = []
    for row in rows:
        if row.cause is not Cause.EXCHANGE:
            found.append(row)
            continue
        skew = min(row.ms, waiting_ms)
        found.append(row.model_copy(update={"ms": row.ms - skew, "waiting_ms": min(row.waiting_ms, row.ms - skew)}))
        found.append(Row(cause=Cause.RANKS, name=CAUSES[Cause.RANKS], ms=skew, waiting_ms=skew))
    return found


def _why(timed_ms: float, sampled_ms: float) -> str | None:
    if timed_ms > _MOST_SCALED * sampled_ms:
        return (
            f"the timed steps took {timed_ms:.1f} ms, those that were sampled {sampled_ms:.1f} ms (without waiting for "
            "a core): something rare, or something else on this machine, slowed the timed ones down"
        )
    return None


def _outside(seen: SeenSampling) -> tuple[Row, ...]:
    if seen.validation_ms <= 0:
        return ()
    return (Row(cause=Cause.OPERATORS, name=_VALIDATION, ms=seen.validation_ms),)


def _lines(
    lines: Iterable[SeenLine], factor: float, launching: set[tuple[str, int]], operators_seen: bool
) -> tuple[Line, ...]:
    """By the line of the user's own code; times inside library calls beneath it are its own."""
    sums: dict[tuple[str, int, int], _Sum] = defaultdict(_Sum)
    causes: dict[tuple[str, int, int], dict[Cause, float]] = defaultdict(lambda: defaultdict(float))
    first: dict[tuple[str, int, int], SeenLine] = {}
    for line in lines:
        if not line.file:
            continue
        key = (line.file, line.first_line, line.line)
        first.setdefault(key, line)
        sums[key].add(line, factor * line.ms, 0.0)
        causes[key][cause_of(line, (line.file, line.line) in launching, operators_seen)] += factor * line.ms
    ranked = sorted(sums, key=lambda key: -sums[key].ms)[:_LINES]
    return tuple(
        Line(
            **_place(first[key]).model_dump(),
            function=first[key].function,
            ms=sums[key].ms,
            by_cause_ms=dict(sorted(causes[key].items(), key=lambda item: -item[1])),
            via=sums[key].via,
        )
        for key in ranked
    )


def _place(line: SeenLine) -> Place:
    return Place(file=line.file, line=line.line, first_line=line.first_line, code=safe_text(line.code))


def _sampling(seen: SeenSampling) -> Sampling:
    return Sampling(
        sampler=seen.sampler.value, why_no_timer=seen.why_no_timer, steps=seen.steps, samples=seen.samples,
        period_ms=seen.period_ms, step_ms=seen.step_ms, own_ms=seen.own_ms,
    )  # fmt: skip

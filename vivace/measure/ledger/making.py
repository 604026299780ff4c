"""The ledger of a job whose clock is the host's: every sampled line has a phase, a kind of work and a cause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from vivace.measure.ledger.causes import LAUNCHES, beneath, by_line, cause_of, data_to_do
from vivace.measure.ledger.rows import Sum, Sums, place_of, rows_of
from vivace.measure.ledger.scaling import VALIDATION, Timed, scaled
from vivace.protocol.sampling import SeenLine, SeenSampling, SeenWorkers
from vivace.records.ledger import CAUSES, Cause, Ledger, Line, OtherThread, Row, Sampling, Workers
from vivace.records.privacy import safe_text

__all__ = ["host_ledger"]

_LINES = 100
_OFTEN = 0.05  # of the looks


def host_ledger(timed: Timed, seen: SeenSampling) -> Ledger:
    every = scaled(timed, seen)
    launching = _launching(every.lines)
    sums = Sums()
    for line in every.lines:
        sums.add(cause_of(line, (line.file, line.line) in launching, seen.operators_seen), line)
    sums.add(Cause.NO_CORE, SeenLine(ms=every.no_core_ms, waiting_ms=every.no_core_ms))
    sums.add(Cause.GC, SeenLine(ms=every.gc_ms))
    rows = [_with_workers(row, seen.workers) for row in rows_of(sums, timed.step_ms)]
    rows = _split_exchange(rows, timed.waiting_for_ranks_ms)
    left = timed.step_ms - sum(row.ms for row in rows)
    return Ledger(
        step_ms=timed.step_ms,
        rows=tuple(sorted(rows, key=lambda row: -row.ms)),
        unexplained_ms=max(0.0, left),
        why_unexplained=every.why_not_all,
        outside=_outside(seen),
        lines=_lines(every.lines, launching, seen.operators_seen),
        workers=_workers(seen.workers),
        threads=_threads(seen),
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


def _outside(seen: SeenSampling) -> tuple[Row, ...]:
    if seen.validation_ms <= 0:
        return ()
    return (Row(cause=Cause.OPERATORS, name=VALIDATION, ms=seen.validation_ms),)


def _lines(lines: Iterable[SeenLine], launching: set[tuple[str, int]], operators_seen: bool) -> tuple[Line, ...]:
    """By the line of the user's own code; times inside library calls beneath it are its own."""
    sums: dict[tuple[str, int, int], Sum] = defaultdict(Sum)
    causes: dict[tuple[str, int, int], dict[Cause, float]] = defaultdict(lambda: defaultdict(float))
    first: dict[tuple[str, int, int], SeenLine] = {}
    for line in lines:
        if not line.file:
            continue
        key = (line.file, line.first_line, line.line)
        first.setdefault(key, line)
        sums[key].add(line)
        causes[key][cause_of(line, (line.file, line.line) in launching, operators_seen)] += line.ms
    ranked = sorted(sums, key=lambda key: -sums[key].ms)[:_LINES]
    return tuple(
        Line(
            **place_of(first[key]).model_dump(),
            function=first[key].function,
            ms=sums[key].ms,
            by_cause_ms=dict(sorted(causes[key].items(), key=lambda item: -item[1])),
            via=sums[key].via,
        )
        for key in ranked
    )


def _with_workers(row: Row, workers: SeenWorkers | None) -> Row:
    """What to do about a wait for data, by what the workers do meanwhile."""
    if row.cause is not Cause.DATA or workers is None or not workers.lines:
        return row
    return row.model_copy(update={"to_do": data_to_do(workers)})


def _workers(seen: SeenWorkers | None) -> Workers | None:
    if seen is None:
        return None
    lines = tuple(
        Row(
            cause=Cause.DATA, name=line.function or beneath(line), ms=line.ms, waiting_ms=line.waiting_ms,
            where=place_of(line) if line.file else None, via=line.via,
        )
        for line in by_line(seen.lines)
    )  # fmt: skip
    return Workers(workers=seen.workers, batches=seen.batches, batch_ms=seen.batch_ms, busy=seen.busy, lines=lines)


def _threads(seen: SeenSampling) -> tuple[OtherThread, ...]:
    return tuple(
        OtherThread(file=one.file, line=one.line, code=safe_text(one.code), share=min(1.0, one.share))
        for one in seen.others
        if one.share >= _OFTEN
    )


def _sampling(seen: SeenSampling) -> Sampling:
    return Sampling(
        sampler=seen.sampler.value, why_no_timer=seen.why_no_timer, steps=seen.steps, samples=seen.samples,
        period_ms=seen.period_ms, step_ms=seen.step_ms, own_ms=seen.own_ms,
    )  # fmt: skip

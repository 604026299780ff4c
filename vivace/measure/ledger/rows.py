"""Sums of sampled lines by cause, and the rows that they make. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from vivace.measure.ledger.causes import to_do
from vivace.protocol.sampling import SeenLine
from vivace.records.ledger import CAUSES, Cause, Place, Row
from vivace.records.privacy import safe_text

__all__ = ["Sum", "Sums", "place_of", "rows_of"]

_OF_ITS_OWN = 0.01  # of the step: a line with less joins the others
_BY_LINE = (Cause.HOST, Cause.LOGGING, Cause.SAVING, Cause.DATA)


@dataclass
class Sum:
    ms: float = 0.0
    waiting_ms: float = 0.0
    vias: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    place: Place | None = None

    def add(self, line: SeenLine) -> None:
        self.ms += line.ms
        self.waiting_ms += line.waiting_ms
        self.vias[line.via] += line.ms
        if self.place is None and line.file:
            self.place = place_of(line)

    @property
    def via(self) -> str:
        return max(self.vias, key=lambda name: self.vias[name], default="")


class Sums:
    """By cause, and within it by line or by family of operators."""

    def __init__(self) -> None:
        self.found: dict[tuple[Cause, object], Sum] = defaultdict(Sum)

    def add(self, cause: Cause, line: SeenLine) -> None:
        self.found[cause, _key(cause, line)].add(line)


def rows_of(sums: Sums, step_ms: float) -> list[Row]:
    """``step_ms``: what a row's share is of."""
    rows = []
    small: dict[Cause, Sum] = defaultdict(Sum)
    for (cause, key), one in sums.found.items():
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


def _row(cause: Cause, name: str, one: Sum, where: Place | None) -> Row:
    waiting = min(one.ms, one.waiting_ms)
    return Row(
        cause=cause, name=name, ms=one.ms, waiting_ms=waiting, where=where, via=one.via if where else "",
        to_do=to_do(cause, one.ms, waiting),
    )  # fmt: skip


def _key(cause: Cause, line: SeenLine) -> object:
    if cause is Cause.OPERATORS:
        return "optimizer" if line.phase == "optimizer" else line.work or "not profiled"
    return (line.file, line.first_line, line.line) if cause in _BY_LINE else ""


def place_of(line: SeenLine) -> Place:
    return Place(file=line.file, line=line.line, first_line=line.first_line, code=safe_text(line.code))

"""Moves time that samples charged to the next call back to the line that spent it, as a trace of a few steps tells.

Pure. A line that was charged much more than it takes when traced gives the difference to lines that ran shortly before
it and were charged less than they take. Nothing else changes, and no time appears or vanishes.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Mapping
from dataclasses import replace

from vivace.protocol.sampling import SeenLine

__all__ = ["Place", "corrected", "doubtful"]

Place = tuple[str, int]
"""File and line."""

_MORE = 1.25  # times what a line takes when traced, and …
_MORE_MS = 0.2  # … so much more
_CODE = 120


def doubtful(lines: Iterable[SeenLine], step_ms: float, share: float) -> bool:
    """Whether so much of a step was charged to lines by samples that came late that a second look is worth it."""
    late = sum(line.ms for line in lines if line.late and not line.leaf_in_torch and line.file)
    return late > share * step_ms


def corrected(
    lines: list[SeenLine], traced_ms: Mapping[Place, float], before: Mapping[Place, Iterable[Place]]
) -> list[SeenLine]:
    """``traced_ms``: per step, of the user's lines. ``before``: those that run shortly before a line."""
    charged: dict[Place, float] = {}
    for line in lines:
        charged[line.file, line.line] = charged.get((line.file, line.line), 0.0) + line.ms
    missing = {place: ms - charged.get(place, 0.0) for place, ms in traced_ms.items()}
    moves: dict[Place, dict[Place, float]] = {}
    for place, ms in sorted(charged.items(), key=lambda item: -item[1]):
        surplus = ms - traced_ms.get(place, 0.0)
        if place not in traced_ms or surplus < _MORE_MS or ms < _MORE * traced_ms[place]:
            continue
        takers = {one: missing[one] for one in before.get(place, ()) if missing.get(one, 0.0) > _MORE_MS}
        total = sum(takers.values())
        moved = min(surplus, total)
        moves[place] = {one: moved * want / total for one, want in takers.items()} if total else {}
        for one, given in moves[place].items():
            missing[one] -= given
    phases = _phases(lines)
    return [part for line in lines for part in _divided(line, charged, moves, phases)]


def _phases(lines: Iterable[SeenLine]) -> dict[Place, str]:
    """Where most of a line's own time was."""
    most: dict[Place, SeenLine] = {}
    for line in lines:
        place = (line.file, line.line)
        if place not in most or line.ms > most[place].ms:
            most[place] = line
    return {place: line.phase for place, line in most.items()}


def _divided(
    line: SeenLine,
    charged: Mapping[Place, float],
    moves: Mapping[Place, Mapping[Place, float]],
    phases: Mapping[Place, str],
) -> list[SeenLine]:
    place = (line.file, line.line)
    given = moves.get(place, {})
    if not given or not charged[place]:
        return [line]
    shares = {one: ms / charged[place] for one, ms in given.items()}
    kept = _part(replace(line, first_line=line.line), 1 - sum(shares.values()))
    return [kept, *(_part(_at(line, one, phases.get(one, line.phase)), share) for one, share in shares.items())]


def _part(line: SeenLine, share: float) -> SeenLine:
    return replace(
        line, ms=share * line.ms, waiting_ms=share * line.waiting_ms, no_core_ms=share * line.no_core_ms,
        samples=share * line.samples,
    )  # fmt: skip


def _at(line: SeenLine, place: Place, phase: str) -> SeenLine:
    """What the sampler saw beneath the wrong line says nothing about the right one."""
    file, number = place
    code = linecache.getline(file, number).strip()[:_CODE]
    return replace(
        line, file=file, line=number, first_line=number, code=code, via="", near="", leaf="", leaf_in_torch=False,
        function="", phase=phase,
    )  # fmt: skip

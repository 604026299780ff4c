"""Which payloads make up one run, and which ranks of it are missing. Reads the run's folder, writes nothing.

A folder may hold more than one run: a preparation script that trains before the ranks start, and ranks that their
launcher restarted. Payloads of different runs are never mixed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vivace.protocol.payload import Payload, Status
from vivace.records.privacy import safe_lines, safe_text

__all__ = ["missing_ranks", "name_ranks", "read_payloads", "world_of"]


def read_payloads(folder: Path) -> list[Payload]:
    """One payload per rank of one run, lowest rank first. Notes on what was left out are on the first."""
    payloads = []
    for path in sorted(folder.glob("rank-*.json")):
        with contextlib.suppress(OSError, json.JSONDecodeError):
            payload = Payload.from_json(safe_lines(json.loads(path.read_text())))
            if payload.rank >= 0:
                payloads.append(payload)
    return _one_run(payloads)


def _one_run(payloads: Sequence[Payload]) -> list[Payload]:
    """Of several world sizes the one that trained longest; of its restarts the one that most ranks completed."""
    worlds = {p.world: _latest_life([q for q in payloads if q.world == p.world]) for p in payloads}
    if not worlds:
        return []
    chosen, notes = max(worlds.values(), key=lambda run: _steps(run[0]))
    for other, _ in worlds.values():
        if other is not chosen:
            notes.append(f"not shown: {_describe(other[0])} on {_count(len(other), 'rank')}, which trained less")
    return [replace(chosen[0], notes=[*chosen[0].notes, *notes]), *chosen[1:]]


def _latest_life(payloads: Sequence[Payload]) -> tuple[list[Payload], list[str]]:
    lives = {p.restart: _one_per_rank([q for q in payloads if q.restart == p.restart]) for p in payloads}
    shown = max(lives, key=lambda life: (_completed(lives[life][0]), len(lives[life][0]), _steps(lives[life][0]), life))
    chosen, notes = lives[shown]
    if len(lives) > 1:
        notes.append(f"the ranks started {len(lives)} times; shown: start {sorted(lives).index(shown) + 1}")
    return chosen, notes


def _one_per_rank(payloads: Sequence[Payload]) -> tuple[list[Payload], list[str]]:
    """Of several processes with the same rank, the one that trained longest."""
    notes = []
    by_rank: dict[int, list[Payload]] = {}
    for payload in payloads:
        by_rank.setdefault(payload.rank, []).append(payload)
    for rank, same in by_rank.items():
        if len(same) > 1:
            names = ", ".join(map(_describe, same))
            notes.append(f"{len(same)} processes trained as rank {rank}: {names}; shown: the longest")
    return [max(by_rank[rank], key=lambda p: p.total_steps) for rank in sorted(by_rank)], notes


def _steps(run: Sequence[Payload]) -> int:
    return max(payload.total_steps for payload in run)


def _completed(run: Sequence[Payload]) -> int:
    return sum(payload.status is Status.COMPLETE for payload in run)


def _describe(payload: Payload) -> str:
    return safe_text(f"{payload.process.script} ({payload.total_steps} steps)")


def world_of(payloads: Sequence[Payload]) -> int:
    """How many ranks the job has, by what the ranks themselves were told."""
    return max(payload.world for payload in payloads)


def missing_ranks(payloads: Sequence[Payload]) -> tuple[int, ...]:
    """Ranks of the job that left no payload."""
    return tuple(sorted(set(range(world_of(payloads))) - {payload.rank for payload in payloads}))


def name_ranks(ranks: Sequence[int]) -> str:
    """Ascending ranks in words.

    >>> name_ranks([1, 2, 3, 7]), name_ranks([4])
    ('ranks 1-3, 7', 'rank 4')
    """
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][-1] + 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    return f"rank{'s' if len(ranks) > 1 else ''} " + ", ".join("-".join(map(str, span)) for span in spans)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"

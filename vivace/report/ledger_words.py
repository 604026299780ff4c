"""The ledger in words, the same in the terminal and on the page: its sum, the rows worth a line, the largest ones."""

from __future__ import annotations

import os

from vivace.records.ledger import Cause, Ledger, Row

__all__ = ["GROUPS", "groups_of", "in_words", "largest", "shown_rows", "sum_in_words"]

GROUPS: tuple[tuple[str, str, tuple[Cause, ...]], ...] = (
    ("at work", "green", (Cause.OPERATORS, Cause.LIMIT, Cause.KERNELS)),
    ("beyond the limit", "cyan", (Cause.BEYOND,)),
    ("launching work", "blue", (Cause.DISPATCH,)),
    ("lines of Python", "red", (Cause.HOST, Cause.LOGGING, Cause.SAVING)),
    ("waiting for data", "magenta", (Cause.DATA,)),
    ("for ranks", "yellow", (Cause.RANKS, Cause.EXCHANGE)),
    ("copies", "magenta", (Cause.COPIES,)),
    ("the GPU's own gaps", "bright_black", (Cause.LATENCY,)),
    ("memory", "yellow", (Cause.GC, Cause.ALLOCATOR)),
    ("without a core", "bright_red", (Cause.NO_CORE,)),
    ("vivace itself", "bright_black", (Cause.OWN,)),
    ("not explained", "bright_black", (Cause.UNEXPLAINED,)),
)
"""Name, colour in a terminal, causes."""

ACTIONABLE = (
    Cause.HOST, Cause.LOGGING, Cause.SAVING, Cause.DATA, Cause.RANKS, Cause.GC, Cause.ALLOCATOR, Cause.NO_CORE,
    Cause.COPIES,
)  # fmt: skip
_SHOWN = 0.01  # of the step
_WORTH_A_WORD = 0.02
_LARGEST = 3


def groups_of(ledger: Ledger) -> list[tuple[str, float]]:
    """Name and milliseconds; together the step."""
    found = [(name, ledger.of(*causes)) for name, _, causes in GROUPS if Cause.UNEXPLAINED not in causes]
    return [*found, ("not explained", ledger.unexplained_ms)]


def sum_in_words(ledger: Ledger) -> str:
    """``164.0 ms = 24.1 at work + 137.2 lines of Python + 2.7 others``"""
    worth = [(name, ms) for name, ms in groups_of(ledger) if ms >= _SHOWN * ledger.step_ms]
    rest = ledger.step_ms - sum(ms for _, ms in worth)
    parts = [f"{ms:.1f} {name}" for name, ms in sorted(worth, key=lambda item: -item[1])]
    parts += [f"{rest:.1f} others"] if round(rest, 1) > 0 else []
    return f"{ledger.step_ms:.1f} ms = {' + '.join(parts)}"


def shown_rows(ledger: Ledger) -> list[Row]:
    """Those of one per cent and more, what is smaller as one row, and what is not explained: together the step."""
    large = [row for row in ledger.rows if row.ms >= _SHOWN * ledger.step_ms]
    small = sum(row.ms for row in ledger.rows) - sum(row.ms for row in large)
    rows = list(large)
    if small > 0:
        rows.append(Row(cause=Cause.OWN, name="all smaller rows", ms=small))
    if ledger.unexplained_ms > 0:
        rows.append(Row(cause=Cause.UNEXPLAINED, name="not explained", ms=ledger.unexplained_ms))
    return rows


def largest(ledger: Ledger) -> list[Row]:
    """The three largest that somebody can do something about."""
    rows = [row for row in ledger.rows if row.cause in ACTIONABLE and row.ms >= _WORTH_A_WORD * ledger.step_ms]
    return sorted(rows, key=lambda row: -row.ms)[:_LARGEST]


def in_words(row: Row) -> str:
    """``train.py:61 `log_metrics(...)` → json.dumps``"""
    if row.where is None:
        return row.name
    first, line = row.where.first_line, row.where.line
    lines = f"{line}" if first >= line else f"one of the lines {first} to {line}"
    via = f" → {row.via}" if row.via else ""
    return f"{os.path.basename(row.where.file)}:{lines} `{row.where.code}`{via}"

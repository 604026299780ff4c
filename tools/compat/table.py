"""The rows of all environments as a CSV, and as the table of docs/compatibility.md."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from tools.compat.suite import Row

__all__ = ["markdown", "read_rows", "write_rows"]

_MARKS = {"ok": "yes", "applied": "applied", "refused": "refused", "not met": "no such part", "fault": "**fault**"}


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def read_rows(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [Row(**row) for row in csv.DictReader(file)]


def markdown(rows: Sequence[Row]) -> str:
    """One line per thing that was tried, one column per environment."""
    cells = sorted({(row.torch, row.python) for row in rows}, key=lambda cell: [_numbers(part) for part in cell])
    steps = list(dict.fromkeys(row.step for row in rows))
    outcomes = {(row.torch, row.python, row.step): _MARKS.get(row.outcome, row.outcome) for row in rows}
    lines = ["| |" + "".join(f" torch {torch}, Python {python} |" for torch, python in cells)]
    lines.append("|---|" + "---|" * len(cells))
    for step in steps:
        lines.append(f"| {step} |" + "".join(f" {outcomes.get((*cell, step), 'not tried')} |" for cell in cells))
    return "\n".join(lines) + "\n"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]

"""Measured gains of the practices: a table that benchmarks fill, one row a measurement, each naming its source file."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

__all__ = ["GAINS", "MeasuredGain", "measured_gains"]

GAINS = Path(__file__).with_name("gains.csv")


@dataclass(frozen=True)
class MeasuredGain:
    """Speed with the practice over speed without it, with its 95 % confidence interval."""

    practice: str
    setting: str
    script: str
    device: str
    ratio: float
    low: float
    high: float
    source_file: str


def measured_gains(name: str, path: Path = GAINS) -> tuple[MeasuredGain, ...]:
    """The rows of one practice; none where nobody has measured it."""
    if not path.is_file():
        return ()
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(_gain(row) for row in csv.DictReader(file) if row["practice"] == name)


def _gain(row: dict[str, str]) -> MeasuredGain:
    figures = {column: float(row[column]) for column in ("ratio", "low", "high")}
    words = {column: row[column] for column in ("practice", "setting", "script", "device", "source_file")}
    return MeasuredGain(**words, **figures)  # type: ignore[arg-type]

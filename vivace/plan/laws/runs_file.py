"""Reads the runs that a law is fitted on: a CSV with the columns params, tokens and loss, one row a run."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path

from vivace.errors import UserError
from vivace.plan.laws.loss_law import TrainedRun

__all__ = ["read_runs"]

_COLUMNS = ("params", "tokens", "loss")
_LARGEST = 16 * 2**20  # bytes: nobody has so many runs


def read_runs(paths: Iterable[Path]) -> list[TrainedRun]:
    runs: list[TrainedRun] = []
    for path in paths:
        runs += _of_file(path)
    return runs


def _of_file(path: Path) -> list[TrainedRun]:
    try:
        if path.stat().st_size > _LARGEST:
            raise UserError(f"{path} is larger than {_LARGEST >> 20} MiB: not a table of runs")
        text = path.read_text()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text file") from None
    reader = csv.DictReader(text.splitlines())
    missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise UserError(f"{path} has no column {missing[0]}", hint=f"its first line must name {', '.join(_COLUMNS)}")
    return [_of_row(path, number, row) for number, row in enumerate(reader, start=2)]


def _of_row(path: Path, number: int, row: dict[str, str]) -> TrainedRun:
    values = []
    for name in _COLUMNS:
        try:
            value = float(row[name])
        except (TypeError, ValueError):
            raise UserError(f"{path}, line {number}: {name} is {row[name]!r}, not a number") from None
        if not 0 < value < math.inf:
            raise UserError(f"{path}, line {number}: {name} is {value:g}; it must be above 0 and finite")
        values.append(value)
    return TrainedRun(*values)

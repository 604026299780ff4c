"""Reads rows of a CSV or JSON file while the script writes it: rows that are added, or the file written anew.

A CSV file needs a line of names. JSON: one object a line, or one list of objects, or one object of equally long lists
(a history).
"""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

from vivace.files import MOST_BYTES
from vivace.race.metrics.printed import ParsedLine, parse_object
from vivace.race.metrics.readings import Source

__all__ = ["Row", "TableFile"]

Row = tuple[ParsedLine, str]
"""What a row says, and the row as text."""
_MOST_A_POLL = 8 << 20
_LONGEST_ROW = 1 << 20


class TableFile:
    """One file. ``read`` returns the rows that have come since the last call; those from before the start are old."""

    def __init__(self, path: Path, skip_old: bool = False) -> None:
        self.path = path
        self.source = Source.JSON_LINES if path.suffix in (".json", ".jsonl", ".ndjson") else Source.CSV
        self._begin_anew()
        if skip_old:
            self.read()

    def _begin_anew(self) -> None:
        self._offset = 0
        self._names: list[str] | None = None
        self._given = 0
        self._stamp: tuple[int, int] | None = None

    def read(self) -> list[Row]:
        try:
            size = self.path.stat().st_size
            if size < self._offset:
                self._begin_anew()  # the script writes it anew
            return self._whole_document() if self.path.suffix == ".json" else self._added_lines()
        except (OSError, UnicodeDecodeError, ValueError, RecursionError, csv.Error):
            return []  # half a file, between two writes: the next look sees it whole

    def _added_lines(self) -> list[Row]:
        with open(self.path, "rb") as file:
            data = os.pread(file.fileno(), _MOST_A_POLL, self._offset)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) > _LONGEST_ROW:
            whole = data
        self._offset += len(whole)
        lines = [line for line in whole.decode("utf-8-sig", "replace").splitlines() if line.strip()]
        return [row for line in lines if (row := self._row(line)) is not None]

    def _row(self, line: str) -> Row | None:
        if self.source is Source.JSON_LINES:
            data = json.loads(line)
            return (parse_object(data), line) if isinstance(data, dict) else None
        fields = next(csv.reader([line], delimiter=_delimiter(line)))
        if self._names is None or fields == self._names:
            self._names = fields
            return None
        values = {name.strip(): _number(field) for name, field in zip(self._names, fields, strict=False)}
        return parse_object(values), line

    def _whole_document(self) -> list[Row]:
        with open(self.path, "rb") as file:
            state = os.fstat(file.fileno())
            stamp = (state.st_mtime_ns, state.st_size)
            if stamp == self._stamp or state.st_size > MOST_BYTES:
                return []
            text = file.read(MOST_BYTES).decode()
        try:
            data = json.loads(text)
        except ValueError:  # perhaps one object a line, in a file called .json
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            rows = _rows(data)
        if len(rows) < self._given:
            self._given = 0
        new, self._given, self._stamp = rows[self._given :], len(rows), stamp
        return [(parse_object(row), json.dumps(row)) for row in new if isinstance(row, dict)]


def _rows(data: Any) -> list[Any]:
    """
    >>> _rows({"loss": [2, 1], "name": "x"}), _rows({"loss": 2})
    ([{'loss': 2}, {'loss': 1}], [{'loss': 2}])
    """
    if isinstance(data, list):
        return data
    lists = {name: values for name, values in data.items() if isinstance(values, list)}
    if not lists:
        return [data]
    return [
        {name: values[number] for name, values in lists.items() if number < len(values)}
        for number in range(max(map(len, lists.values())))
    ]


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def _number(field: str) -> float | None:
    try:
        return float(field.rstrip("% ")) / (100 if field.rstrip().endswith("%") else 1)
    except ValueError:
        return None

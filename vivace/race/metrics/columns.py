"""Printed tables: a line of names once, then lines of numbers (airbench, fast.ai, David Page's cifar10-fast).

>>> table = Columns()
>>> table.read("|  epoch  |  train_loss  |  val_acc  |")
>>> [(pair.text, pair.value) for pair in table.read("| 2 | 0.41 | 0.87 |").pairs]
[('train_loss', 0.41), ('val_acc', 0.87)]
"""

from __future__ import annotations

import re

from vivace.race.metrics.printed import ParsedLine, parse_object

__all__ = ["Columns"]

_NAME = re.compile(r"[^\W\d_][\w@%./ -]*")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?%?|[-+]?(?:nan|inf)", re.IGNORECASE)
_NO_VALUE = re.compile(r"|-+|None|[\d:]+")
_FEWEST_PLAIN = 3  # columns without lines between them: two words are rather a sentence


class Columns:
    """Remembers the last line of names."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def read(self, line: str) -> ParsedLine | None:
        """What a row says; None for every other line."""
        ruled = "|" in line or "│" in line
        fields = [field.strip() for field in re.split(r"[|│]", line.strip(" |│"))] if ruled else line.split()
        if len(fields) < (2 if ruled else _FEWEST_PLAIN):
            return None
        if all(_NAME.fullmatch(field) for field in fields) and not any(map(_NUMBER.fullmatch, fields)):
            self._names = fields
            return None
        if len(fields) != len(self._names) or not self._is_row(fields, ruled):
            return None
        return parse_object({name: _value(field) for name, field in zip(self._names, fields, strict=True)})

    def _is_row(self, fields: list[str], ruled: bool) -> bool:
        others = [field for field in fields if not _NUMBER.fullmatch(field)]
        return len(others) < len(fields) and (ruled or all(map(_NO_VALUE.fullmatch, others)))


def _value(field: str) -> float | None:
    if not _NUMBER.fullmatch(field):
        return None
    return float(field[:-1]) / 100 if field.endswith("%") else float(field)

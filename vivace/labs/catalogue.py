"""All labs, by day, and one by its name."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vivace.errors import UserError
from vivace.labs.cells import Cell, cells
from vivace.labs.header import Header, split_source

__all__ = ["SOURCES", "Lab", "all_labs", "find_lab"]

SOURCES = Path(__file__).parent / "sources"


@dataclass(frozen=True)
class Lab:
    name: str
    source: Path
    header: Header
    cells: tuple[Cell, ...]


@cache
def all_labs() -> tuple[Lab, ...]:
    """By day, and in the order of the day."""
    labs = [_read(path) for path in SOURCES.glob("*.py")]
    return tuple(sorted(labs, key=lambda lab: (lab.header.day, lab.header.order, lab.name)))


def _read(path: Path) -> Lab:
    try:
        header, body = split_source(path.read_text(encoding="utf-8"))
        return Lab(path.stem, path, header, tuple(cells(body)))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def find_lab(name: str) -> Lab:
    """Dashes are as good as underscores."""
    wanted = name.replace("-", "_")
    known = {lab.name: lab for lab in all_labs()}
    if wanted in known:
        return known[wanted]
    near = difflib.get_close_matches(wanted, known, 1)
    raise UserError(f"no lab called {name!r}", hint=f"did you mean {near[0]}?" if near else "vivace lab list")

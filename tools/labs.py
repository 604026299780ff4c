"""Makes the page and the notebook of each lab from its one source, a Python file with cells.

    python tools/labs.py              writes docs/labs/NAME.md and NAME.ipynb for every docs/labs/NAME.py
    python tools/labs.py --check      says which are out of date, and ends with 1

A source is plain Python: a cell begins with ``# %%`` (code) or ``# %% [markdown]`` (text, behind ``# ``), as editors
and jupytext know it. It runs from top to bottom with ``python docs/labs/NAME.py``, too.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LABS = Path(__file__).resolve().parent.parent / "docs" / "labs"
_CELL = re.compile(r"^# %%(?P<kind> \[markdown\])?$", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    text: str
    is_code: bool


def cells(source: str) -> list[Cell]:
    """
    >>> cells("# %% [markdown]\\n# # A lab\\n# %%\\nprint(1)\\n")
    [Cell(text='# A lab', is_code=False), Cell(text='print(1)', is_code=True)]
    """
    marks = list(_CELL.finditer(source))
    if not marks or source[: marks[0].start()].strip():
        raise ValueError("a lab begins with a cell: # %% [markdown]")
    ends = [mark.start() for mark in marks[1:]] + [len(source)]
    return [_cell(mark, source[mark.end() : end].strip("\n")) for mark, end in zip(marks, ends, strict=True)]


def _cell(mark: re.Match[str], text: str) -> Cell:
    if mark["kind"] is None:
        return Cell(text.rstrip(), True)
    lines = text.splitlines()
    if wrong := next((line for line in lines if not line.startswith("#")), None):
        raise ValueError(f"text of a lab stands behind #: {wrong!r}")
    return Cell("\n".join(line[2:] for line in lines).strip("\n"), False)


def page(every: list[Cell]) -> str:
    parts = [_indented(cell.text) if cell.is_code else cell.text for cell in every]
    return "\n\n".join(parts) + "\n"


def _indented(code: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in code.splitlines())


def notebook(every: list[Cell]) -> dict[str, Any]:
    """Version 4.5 of the format, without outputs: they come when it is run."""
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "cells": [_notebook_cell(number, cell) for number, cell in enumerate(every)],
    }


def _notebook_cell(number: int, cell: Cell) -> dict[str, Any]:
    common = {"id": f"cell-{number}", "metadata": {}, "source": cell.text.splitlines(keepends=True)}
    if cell.is_code:
        return {"cell_type": "code", "execution_count": None, "outputs": [], **common}
    return {"cell_type": "markdown", **common}


def products(source: Path) -> dict[Path, str]:
    every = cells(source.read_text(encoding="utf-8"))
    as_json = json.dumps(notebook(every), indent=1, ensure_ascii=False) + "\n"
    return {source.with_suffix(".md"): page(every), source.with_suffix(".ipynb"): as_json}


def main(words: list[str]) -> int:
    stale = []
    for source in sorted(LABS.glob("*.py")):
        for path, text in products(source).items():
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(path.name)
                if "--check" not in words:
                    path.write_text(text, encoding="utf-8")
    if "--check" in words and stale:
        print(f"out of date: {', '.join(stale)}; run python tools/labs.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

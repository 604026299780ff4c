"""The cells of a lab: ``# %%`` begins code, ``# %% [markdown]`` text behind ``# ``, as editors and jupytext know it."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Cell", "cells"]

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
        raise ValueError("after its header, a lab begins with a cell: # %% [markdown]")
    ends = [mark.start() for mark in marks[1:]] + [len(source)]
    return [_cell(mark, source[mark.end() : end].strip("\n")) for mark, end in zip(marks, ends, strict=True)]


def _cell(mark: re.Match[str], text: str) -> Cell:
    if mark["kind"] is None:
        return Cell(text.rstrip(), True)
    lines = text.splitlines()
    if wrong := next((line for line in lines if not line.startswith("#")), None):
        raise ValueError(f"text of a lab stands behind #: {wrong!r}")
    return Cell("\n".join(line[1:].removeprefix(" ") for line in lines).strip("\n"), False)

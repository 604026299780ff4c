"""What the cells of a lab use: the table, its picture, and whether the small form was asked for.

Under ``vivace lab run`` tables and pictures are also written to a folder; in a notebook they are shown only.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["OUT", "SMALL", "Table", "is_small", "save"]

OUT = "VIVACE_LAB_OUT"
"""The folder for tables and pictures."""
SMALL = "VIVACE_LAB_SMALL"
"""1: the form that takes seconds on two CPU cores; 0: the full one."""


def is_small() -> bool:
    """As ``vivace lab run`` was asked; in a notebook, small where there is no GPU."""
    asked = os.environ.get(SMALL)
    if asked is not None:
        return asked == "1"
    import torch

    return not torch.cuda.is_available()


class Table:
    """Rows of one lab. A column's name ends with its unit: ``step_ms``. ``None`` is what was not measured.

    >>> table = Table("batch", "step_ms")
    >>> table.add(8, 1.5)
    >>> table.add(16, None)
    >>> table.show()
    batch  step_ms
        8      1.5
       16
    """

    def __init__(self, *columns: str, name: str = "table") -> None:
        self.columns, self.name = columns, name
        self.rows: list[tuple[Any, ...]] = []

    def add(self, *values: Any) -> None:
        if len(values) != len(self.columns):
            raise ValueError(f"{len(values)} values for {len(self.columns)} columns: {values}")
        self.rows.append(values)

    def column(self, name: str) -> list[Any]:
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def show(self) -> None:
        """Print the table, and write ``NAME.csv`` under ``vivace lab run``."""
        print(self)
        if (path := _written(f"{self.name}.csv")) is not None:
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows([self.columns, *self.rows])

    def __str__(self) -> str:
        lines = [self.columns, *(tuple(_shown(value) for value in row) for row in self.rows)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(self.columns))]
        numbers = [all(_is_number(value) for value in self.column(name)) for name in self.columns]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, number in zip(line, widths, numbers, strict=True)
            ).rstrip()
            for line in lines
        )

    def picture(
        self, x: str, y: Sequence[str], *, bars: bool = False, log_x: bool = False, log_y: bool = False, title: str = ""
    ) -> Figure:
        """The columns ``y`` over ``x``; ``NAME.png`` under ``vivace lab run``. Rows without a value are left out."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        for place, name in enumerate(y):
            values = self.column(name)
            if bars:
                width = 0.8 / len(y)
                places = [row + (place - (len(y) - 1) / 2) * width for row in range(len(values))]
                axes.bar(places, [value or 0 for value in values], width, label=name)
            else:
                points = [(at, value) for at, value in zip(self.column(x), values, strict=True) if value is not None]
                axes.plot([at for at, _ in points], [value for _, value in points], marker="o", label=name)
        if bars:
            axes.set_xticks(range(len(self.rows)), [_shown(value) for value in self.column(x)], rotation=20, ha="right")
        if log_x:
            axes.set_xscale("log", base=2)
        if log_y:
            axes.set_yscale("log")
        axes.set(xlabel=x, title=title)
        if len(y) > 1:
            axes.legend()
        else:
            axes.set_ylabel(y[0])
        save(figure, self.name)
        return figure


def save(figure: Figure, name: str) -> None:
    """``NAME.png`` under ``vivace lab run``, for pictures that a lab draws itself."""
    if (path := _written(f"{name}.png")) is not None:
        figure.savefig(path, dpi=120)


def _written(name: str) -> Path | None:
    folder = os.environ.get(OUT)
    return Path(folder, name) if folder else None


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _shown(value: object) -> str:
    """
    >>> [_shown(value) for value in (None, True, 20784, 0.000012345, 1234.567)]
    ['', 'yes', '20,784', '1.23e-05', '1,235']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)

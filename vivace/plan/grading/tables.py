"""Published tables as rows: comments apart, cells by column name, the schema recognised by its columns.

Reads the CSV files that it is given and nothing else. Called by ``validate.py``.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from vivace.errors import UserError
from vivace.files import read_user_text

__all__ = ["Table", "read_table"]


@dataclass(frozen=True)
class Table:
    """A file: its comment lines, and its rows with lower-case column names."""

    path: Path
    comments: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, str], ...]

    @property
    def kind(self) -> str:
        """``language`` (the 42 columns, or enough of them), ``vision``, ``timm`` or ``other``."""
        have = set(self.columns)
        if {"hidden", "layers", "n_gpus"} <= have and have & {"global_batch", "micro_batch"}:
            measured = have & {
                "tokens_s",
                "tokens_s_gpu",
                "step_time_s",
                "samples_s",
                "tflops_gpu",
                "mem_gpu",
            }
            return "language" if measured else "other"
        if "train_samples_per_sec" in have:
            return "timm"
        if {"model", "batch_per_gpu"} <= have and have & {"samples_s", "step_time_ms"}:
            return "vision"
        return "other"


def read_table(path: Path | str) -> Table:
    """Read a CSV with ``#`` comments. A file that is absent, empty or not text is a ``UserError``."""
    path = Path(path)
    try:
        text = read_user_text(path).removeprefix("\ufeff")
    except FileNotFoundError:
        raise UserError(f"{path} does not exist", hint="give the path of a CSV file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}", hint="give a CSV file in UTF-8") from None
    lines = text.splitlines()
    comments = "\n".join(line for line in lines if line.lstrip().startswith("#"))
    data = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not data:
        raise UserError(f"{path} has no rows", hint="the first line that is not a comment names the columns")
    reader = csv.reader(data)
    columns = tuple(_column(name) for name in next(reader))
    rows = tuple(
        {name: cell.strip() for name, cell in zip(columns, cells, strict=False)} for cells in reader if any(cells)
    )
    return Table(path, comments, columns, rows)


def _column(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")

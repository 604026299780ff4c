"""Recipes that others published, as versioned tables, and their arithmetic: epochs x samples / throughput = minutes.

``mlperf/*.toml`` holds the data with its corrections. Called by ``vivace recipe``. Needs no torch.
"""

from __future__ import annotations

import difflib
import tomllib
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any

from pydantic import Field

from vivace.errors import UserError
from vivace.records.base import Part

__all__ = ["Checked", "PublishedRow", "PublishedTable", "Verdict", "check_table", "find_table", "published_tables"]

_CLOSE = 0.15
"""Evaluation, and what varies between submitters with the same GPUs, are not in the throughput of a table."""


class PublishedRow(Part):
    gpus: int
    label: str = ""
    epochs: float | None = None
    samples_in_all: float | None = Field(None, description="to convergence, where no epochs are counted")
    warmup: str | None = None
    decay: str | None = None
    batch: int
    lr: float
    weight_decay: float | None = None
    momentum: float | None = None
    betas: tuple[float, float] | None = None
    samples_per_s: float | None = None
    games_per_s: float | None = None
    published_min: float | None = None
    published_by: str = ""
    printed: dict[str, float] = Field(
        default_factory=dict, description="what the source prints, where it was corrected"
    )
    why: str = ""

    @property
    def batch_per_gpu(self) -> float | None:
        return self.batch / self.gpus if self.gpus else None


class PublishedTable(Part):
    name: str
    version: str
    task: str
    framework: str
    optimizer: str
    data: str
    samples: int | None = Field(None, description="in an epoch")
    printed: dict[str, float] = Field(default_factory=dict)
    why: str = ""
    rows: tuple[PublishedRow, ...]


class Verdict(StrEnum):
    AGREES = "agrees"
    DIFFERS = "differs"
    NO_RESULT = "no published time"
    NO_RATE = "no throughput printed"


class Checked(Part):
    """One row: what its figures come to, beside what was published."""

    table: str
    gpus: int
    minutes: float | None
    printed_minutes: float | None = Field(description="from the figures as they are printed, where some were corrected")
    published_min: float | None
    implied_per_s: float | None = Field(description="samples/s that the published time needs, where none is printed")
    verdict: Verdict
    why: str


@cache
def published_tables() -> tuple[PublishedTable, ...]:
    folder = resources.files("vivace.recipes") / "mlperf"
    found: list[PublishedTable] = []
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.name.endswith(".toml"):
            file = tomllib.loads(entry.read_text(encoding="utf-8"))
            found += [PublishedTable.model_validate({**table, "version": file["version"]}) for table in file["tables"]]
    return tuple(found)


def find_table(name: str) -> PublishedTable | None:
    return next((table for table in published_tables() if table.name == name), None)


def unknown(name: str, shipped: list[str]) -> UserError:
    known = [*shipped, *(table.name for table in published_tables())]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else "vivace recipe list, or a file: my.toml"
    return UserError(f"no recipe called {name!r}", hint=hint)


def check_table(table: PublishedTable) -> list[Checked]:
    return [_checked(table, row) for row in table.rows if row.gpus]


def _checked(table: PublishedTable, row: PublishedRow) -> Checked:
    minutes = _minutes(table.samples, row.model_dump())
    corrected = {**table.printed, **row.printed}
    as_printed = None
    if corrected:
        as_printed = _minutes(
            int(corrected.get("samples", table.samples or 0)) or None, {**row.model_dump(), **corrected}
        )
    seen = row.samples_in_all or (row.epochs or 0) * (table.samples or 0)
    implied = None
    if row.published_min is not None and row.samples_per_s is None and seen:
        implied = seen / row.published_min / 60
    if minutes is None:
        verdict = Verdict.NO_RATE
    elif row.published_min is None:
        verdict = Verdict.NO_RESULT
    else:
        close = abs(minutes / row.published_min - 1) <= _CLOSE
        verdict = Verdict.AGREES if close else Verdict.DIFFERS
    return Checked(
        table=table.name,
        gpus=row.gpus,
        minutes=minutes,
        printed_minutes=as_printed,
        published_min=row.published_min,
        implied_per_s=implied,
        verdict=verdict,
        why=row.why or table.why,
    )


def _minutes(samples: int | None, row: dict[str, Any]) -> float | None:
    seen = row["samples_in_all"] or (row["epochs"] or 0) * (samples or 0)
    return seen / row["samples_per_s"] / 60 if seen and row["samples_per_s"] else None

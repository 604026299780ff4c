"""The page of a Slurm job: how it stands, planned and achieved, and the pieces that it ran in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vivace.report.page import page
from vivace.report.rendering import render
from vivace.report.status_view import status_rows

__all__ = ["job_page"]


def job_page(table: dict[str, Any], pieces: Sequence[Any], submitted: str | None, clock: Callable[[float], str]) -> str:
    """``table``: what ``vivace status`` shows. ``pieces``: the job's starts (``vivace.launch.pieces``)."""
    title = f"Job {table['job_id']}: {table['state']}"
    section = render(
        "job", title=title, name=table["name"], submitted=submitted, rows=status_rows(table, clock), pieces=pieces,
        clock=clock,
    )  # fmt: skip
    return page(f"{title} · {table['name']}", [section])

"""Where the folders of all runs are: the option that every command shares, and where readers look for a record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vivace.measure.folder import DEFAULT_RUNS, EARLIER_RUNS

__all__ = ["DEFAULT_RUNS", "Output", "places"]

Output = Annotated[
    Path, typer.Option("--output", "-o", envvar="VIVACE_RUNS", help="Folder that holds the folders of all runs.")
]


def places(asked: Path) -> tuple[Path, ...]:
    """Where to look for a run: ``asked``, and with the default also where earlier versions wrote."""
    return (asked, EARLIER_RUNS) if asked == DEFAULT_RUNS else (asked,)

"""Runs the small form of a lab in a forked process, and reads its tables."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

from conftest import environment
from forked.process import can_fork, run

from vivace.labs.catalogue import find_lab

__all__ = ["Tables", "small"]

Tables = dict[str, list[dict[str, str]]]


def small(name: str, folder: Path) -> Tables:
    """By the name of the table; cells as written. Each table of a lab has rows, and one picture at least is there."""
    lab = find_lab(name)
    variables = environment(VIVACE_LAB_SMALL="1", VIVACE_LAB_OUT=str(folder), MPLBACKEND="agg")
    command = [sys.executable, str(lab.source)]
    if can_fork(command, variables):
        done = run(command, folder, variables, timeout_s=600)
    else:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=variables, timeout=600)
    assert done.returncode == 0, done.stderr
    tables = {path.stem: list(csv.DictReader(path.open(encoding="utf-8"))) for path in folder.glob("*.csv")}
    assert tables
    assert all(tables.values())
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))
    assert list(folder.glob("*.png"))
    return tables

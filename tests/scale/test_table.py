"""The table in docs is the one that was measured, and it covers every script, mode and number of ranks."""

from __future__ import annotations

import csv
import itertools
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_written_from_the_measurements():
    written = runpy.run_path(str(ROOT / "benchmarks" / "scale_table.py"))["page"]()
    assert (ROOT / "docs" / "scale_scripts.md").read_text() == written


def test_every_script_is_measured_and_none_differs():
    with (ROOT / "benchmarks" / "results" / "scale_equality.csv").open(newline="") as file:
        rows = {(row["script"], row["mode"], row["ranks"]): row for row in csv.DictReader(file)}
    scripts = [path.stem for path in (ROOT / "tests" / "scale" / "zoo").glob("*.py")]
    assert set(rows) == set(itertools.product(scripts, ("ddp", "zero1", "fsdp"), ("2", "3")))
    refused = {key for key, row in rows.items() if row["largest_relative_difference"] == "refused"}
    assert {key[:2] for key in refused} == {("functional", "fsdp"), ("prunes", "fsdp")}
    assert all(float(row["largest_relative_difference"]) < 2e-12 for key, row in rows.items() if key not in refused)
    assert {row["same_files"] for row in rows.values()} == {"yes"}

"""The table in docs/compatibility.md is that of the CSV: four releases of torch, each with every step."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tools.compat.table import markdown, read_rows

ROOT = Path(__file__).parents[2]


def test_the_table_says_what_the_csv_does():
    rows = read_rows(ROOT / "benchmarks" / "results" / "compatibility.csv")
    assert markdown(rows).strip() in (ROOT / "docs" / "compatibility.md").read_text()
    steps = Counter(row.torch for row in rows)
    assert len(steps) >= 4
    assert len(set(steps.values())) == 1  # none was cut short

"""Today's model beside what was measured on an H200: what README says of it must stay true."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["status"] == "ok"]


@pytest.mark.parametrize(("name", "cases"), [("plan_h200", 15), ("plan_h200_unpadded", 5)])
def test_the_predictions_on_file_are_todays(tmp_path: Path, name: str, cases: int):
    measured = BENCHMARKS / "results" / f"{name}.csv"
    command = [sys.executable, str(BENCHMARKS / "plan_h200.py"), str(tmp_path / "now.csv"), "--beside", str(measured)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    on_file, now = rows(BENCHMARKS / "results" / f"{name}_after.csv"), rows(tmp_path / "now.csv")
    assert len(now) == len(on_file) == cases
    for before, today in zip(on_file, now, strict=True):
        assert float(today["predicted_step_ms"]) == pytest.approx(float(before["predicted_step_ms"]), rel=0.01), today
        assert abs(float(today["step_error_pct"])) <= 10
        assert abs(float(today["reserved_error_pct"])) <= 5

"""A bounded part of benchmarks/ledger_planted.py: real trainings with a delay on a known line, through `vivace`.

No times are asserted, only who is charged: the machine may be busy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

JOB = Path(__file__).parents[3] / "benchmarks" / "ledger_jobs" / "planted.py"


def line_of(plant: str) -> int:
    lines = JOB.read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if line.endswith(f"# planted: {plant}"))


def run(vivace: Callable, plant: str, tmp_path: Path) -> dict:
    marks = tmp_path / "marks.json"
    script = (sys.executable, str(JOB), "--plant", plant, "--marks", str(marks))
    record = vivace("measure", "--json", "--steps", "15", "--", *script).record
    assert json.loads(marks.read_text())
    ledger = record["ledger"]
    rows = sum(row["ms"] for row in ledger["rows"]) + ledger["unexplained_ms"]
    assert rows == pytest.approx(ledger["step_ms"], rel=0.02)
    return record


def test_a_sleep_is_charged_to_its_line_as_waiting(vivace_here: Callable, tmp_path: Path):
    ledger = run(vivace_here, "sleep", tmp_path)["ledger"]
    line = next(line for line in ledger["lines"] if line["line"] == line_of("sleep"))
    assert line["code"] == "time.sleep(0.005)  # planted: sleep"
    assert line["by_cause_ms"]["host"] > 2.5
    rows = [row for row in ledger["rows"] if row["where"] and row["where"]["line"] == line_of("sleep")]
    assert all(row["cause"] == "host" and row["waiting_ms"] > 0 for row in rows)


def test_an_operator_is_found_by_the_second_look(vivace_here: Callable, tmp_path: Path):
    ledger = run(vivace_here, "operator", tmp_path)["ledger"]
    line = next(line for line in ledger["lines"] if line["line"] == line_of("operator"))
    assert line["by_cause_ms"]["operators"] > 0.5 * line["ms"]
    families = {row["name"]: row["ms"] for row in ledger["rows"] if row["cause"] == "operators"}
    assert families["matrix multiplication"] > 0


def test_the_line_of_a_slow_transform_is_found_in_the_worker(vivace_here: Callable, tmp_path: Path):
    ledger = run(vivace_here, "transform", tmp_path)["ledger"]
    first = ledger["workers"]["lines"][0]
    assert first["where"]["line"] == line_of("transform")
    assert first["waiting_ms"] > 0
    data = max((row for row in ledger["rows"] if row["cause"] == "data"), key=lambda row: row["ms"])
    assert f"planted.py:{line_of('transform')}" in data["to_do"]

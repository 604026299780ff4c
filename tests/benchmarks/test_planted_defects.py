"""The benchmark of planted defects: every rule has its script, and rows are judged right. No timing here."""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("planted_defects", "rows", "sides"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("planted_defects")


def test_every_rule_from_1_to_17_has_a_script_with_a_switch(planted: ModuleType) -> None:
    assert {defect.rule for defect in planted.DEFECTS} == {f"R{n}" for n in range(1, 18)}
    for defect in planted.DEFECTS:
        text = (BENCHMARKS / "defects" / defect.script).read_text()
        assert "args.fixed" in text or '"--fixed" in sys.argv' in text, defect.script
    scripts = {path.name for path in (BENCHMARKS / "defects").glob("r[0-9]*.py")}
    assert {defect.script for defect in planted.DEFECTS} == scripts


@pytest.mark.parametrize(
    ("where", "right"),
    [
        ({"file": "elsewhere/r07_debug_left_on.py", "line": "marked"}, True),
        ({"file": "elsewhere/r07_debug_left_on.py", "line": 1}, False),
        ({"file": "elsewhere/other.py", "line": "marked"}, False),
        (None, False),
    ],
)
def test_a_place_is_right_on_the_marked_line_only(
    planted: ModuleType, where: dict[str, Any] | None, right: bool
) -> None:
    defect = next(d for d in planted.DEFECTS if d.key == "r07_debug_left_on")
    lines = (BENCHMARKS / "defects" / defect.script).read_text().splitlines()
    marked = next(number for number, line in enumerate(lines, 1) if "set_detect_anomaly(True)" in line)
    if where is not None and where["line"] == "marked":
        where = {**where, "line": marked}
    assert planted.where_is_right(defect, {"where": where}) is right


def test_a_row_that_fails_says_why_and_the_next_one_is_written(planted: ModuleType, tmp_path: Path) -> None:
    table = planted.Table(tmp_path / "rows.csv", ("rule", "gain", "note", "torch"), {"torch": "2.x"})
    table.attempt(planted.Clock(None), lambda: 1 / 0, rule="R1")
    table.attempt(planted.Clock(None), lambda: table.add(rule="R2", gain=1.23456), rule="R2")
    table.attempt(planted.Clock(0.0), lambda: table.add(rule="R3"), rule="R3")
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["rule"] for row in rows] == ["R1", "R2", "R3"]
    assert rows[0]["note"] == "failed: ZeroDivisionError: division by zero"
    assert (rows[1]["gain"], rows[1]["note"]) == ("1.235", "")
    assert "--budget" in rows[2]["note"]

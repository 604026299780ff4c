"""The lab on mixed precision: its tables are facts of the formats."""

from __future__ import annotations

from pathlib import Path

from labs.running import small


def test_precision(tmp_path: Path) -> None:
    tables = small("precision", tmp_path)
    formats = {row["format"]: row for row in tables["formats"]}
    assert {name: int(row["counts_to"]) for name, row in formats.items()} == {
        "fp32": 2**24,
        "fp16": 2**11,
        "bf16": 2**8,
    }
    assert float(formats["bf16"]["after_1000_updates"]) == 1.0
    assert abs(float(formats["fp32"]["after_1000_updates"]) - 2.0) < 1e-3
    assert float(formats["fp16"]["smallest"]) == 2.0**-24
    assert [row["dtype"] for row in tables["autocast"]] == ["float32", "bfloat16", "float32", "float32", "float32"]
    lost = [float(row["lost"]) for row in tables["table"]]
    overflow = [float(row["overflow"]) for row in tables["table"]]
    assert lost == sorted(lost, reverse=True)
    assert overflow == sorted(overflow)
    assert lost[0] > 0.1
    assert lost[-1] == 0 < overflow[-1]

"""The labs that show techniques under the hood: their tables follow the laws on their pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from labs.running import small

PARAMETERS_BYTES = 13_856
RANKS = 4
ALL_REDUCE_BYTES = 2 * (RANKS - 1) * PARAMETERS_BYTES // RANKS


def test_data_parallel(tmp_path: Path) -> None:
    rows = small("data_parallel", tmp_path)["table"]
    assert [int(row["buckets"]) for row in rows] == [6, 2, 1]
    assert [int(row["messages"]) for row in rows] == [2 * (RANKS - 1) * int(row["buckets"]) for row in rows]
    assert {int(row["sent_bytes"]) for row in rows} == {ALL_REDUCE_BYTES}


def test_zero(tmp_path: Path) -> None:
    rows = {row["stage"]: row for row in small("zero", tmp_path)["table"]}
    kept = [int(rows[stage]["kept_bytes"]) for stage in "123"]
    assert kept == [PARAMETERS_BYTES * 3 // 2, PARAMETERS_BYTES * 3 // 2, PARAMETERS_BYTES * 3 // 4]
    assert [int(rows[stage]["sent_bytes"]) * 2 for stage in "123"] == [ALL_REDUCE_BYTES * n for n in (2, 2, 3)]


def test_pipeline(tmp_path: Path) -> None:
    tables = small("pipeline", tmp_path)
    assert [(row["schedule"], row["waiting_share"], row["kept_on_rank_0"]) for row in tables["table"]] == [
        ("naive", "75%", "1"), ("gpipe", "27%", "8"), ("1F1B", "27%", "4"),
    ]  # fmt: skip
    for row in tables["waiting"]:
        assert float(row["waiting_share"]) == pytest.approx(3 / (int(row["micro_batches"]) + 3))


def test_tensor_parallel(tmp_path: Path) -> None:
    rows = small("tensor_parallel", tmp_path)["table"]
    assert [(row["all_reduces_forward"], row["all_reduces_backward"]) for row in rows] == [("1", "0"), ("2", "2")]


def test_messages(tmp_path: Path) -> None:
    tables = small("messages", tmp_path)
    assert [(row["ranks"], row["sent_bytes"]) for row in tables["all_reduce"]] == [("2", "96000"), ("4", "144000")]
    assert all(row["sent_bytes"] == row["theory_bytes"] for row in tables["all_reduce"])
    errors = [float(row["error"]) for row in tables["pi"]]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-12

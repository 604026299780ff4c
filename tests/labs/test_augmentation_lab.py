"""Augmentation: what a worker sends, how many operators a batch takes, and labels that fit pixels."""

from __future__ import annotations

from pathlib import Path

import pytest
from labs.running import small


def test_augmentation(tmp_path: Path) -> None:
    tables = small("augmentation", tmp_path)
    assert [float(row["times"]) for row in tables["sent"]] == [1, 4]
    rows = {int(row["batch"]): {name: int(value) for name, value in row.items()} for row in tables["table"]}
    for way in ("mixup", "cutmix"):
        assert len({row[f"{way}_batch"] for row in rows.values()}) == 1
        more = rows[16][f"{way}_loop"] - rows[8][f"{way}_loop"]
        assert rows[32][f"{way}_loop"] - rows[16][f"{way}_loop"] == 2 * more > 0
    (labels,) = tables["labels"]
    assert float(labels["largest_error_of_label"]) == pytest.approx(0, abs=1e-6)
    assert labels["labels_sum_to_1"] == "True"
    assert int(labels["rectangles_at_an_edge"]) > 0

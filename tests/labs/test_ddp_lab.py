"""DDP: gradients of one process, networks that fail, and exchanges counted."""

from __future__ import annotations

from pathlib import Path

from labs.running import small


def test_ddp(tmp_path: Path) -> None:
    tables = small("ddp", tmp_path)
    assert [row["same_gradient"] for row in tables["table"]] == ["True", "False", "True"]
    assert float(tables["table"][1]["difference"]) > 0.01
    ended = [(row["find_unused_parameters"], row["ended"] == "well") for row in tables["unused"]]
    assert ended == [("False", False), ("True", True)] * 2 + [("False", True), ("True", True)]
    assert "Expected to have finished reduction" in tables["unused"][0]["ended"]
    for row in tables["accumulation"]:
        assert int(row["exchanges"]) == (1 if row["no_sync"] == "True" else int(row["batches_per_update"]))
        assert float(row["difference"]) < 1e-6

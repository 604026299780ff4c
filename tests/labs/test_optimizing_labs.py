"""Learning rates, optimizers and searches: tables that follow the laws on their pages."""

from __future__ import annotations

from pathlib import Path

from labs.running import small


def test_lr_finder(tmp_path: Path) -> None:
    tables = small("lr_finder", tmp_path)
    one_rate_further = 10 ** (1 / 20)
    for row in tables["parabola"]:
        lowest, limit = float(row["lowest_at"]), float(row["limit"])
        assert lowest <= limit < lowest * one_rate_further
        assert float(row["suggested"]) < limit < float(row["back_at_start"]) / 10
    losses = {row["optimizer"]: row for row in tables["table"]}
    assert len(losses) == 3
    for row in losses.values():
        assert float(row["the_suggestion"]) < float(row["a_tenth"])
    assert float(losses["sgd, momentum 0.9"]["ten_times"]) > float(losses["sgd, momentum 0.9"]["the_suggestion"])
    suggested = {row["optimizer"]: float(row["suggested"]) for row in tables["suggestions"]}
    assert suggested["adamw"] < suggested["sgd, momentum 0.9"] < suggested["sgd"]
    assert [tuple(row.values())[1:] for row in tables["mistakes"]] == [
        ("10", "10", "0", "80"), ("10", "1", "0", "80"), ("10", "10", "9", "80"), ("10", "10", "0", "1"),
    ]  # fmt: skip

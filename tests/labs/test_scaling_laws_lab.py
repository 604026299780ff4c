"""Scaling laws: the fit finds the law that the runs were drawn from, and a budget is split by its exponents."""

from __future__ import annotations

from pathlib import Path

import pytest
from labs.running import small


def test_scaling_laws(tmp_path: Path) -> None:
    tables = small("scaling_laws", tmp_path)
    truth, exact, noisy, wrong = tables["table"]
    for name in ("E", "alpha", "beta"):
        assert float(exact[name]) == pytest.approx(float(truth[name]), rel=0.01)
    assert float(noisy["left_out_error"]) > float(exact["left_out_error"])
    assert float(wrong["alpha"]) == pytest.approx(float(truth["alpha"]), rel=0.05)
    prediction = tables["predictions"][0]
    assert float(prediction["predicted"]) == pytest.approx(float(prediction["true_loss"]), rel=0.005)
    assert float(prediction["times_largest_run"]) == pytest.approx(100)
    params = [float(row["params"]) for row in tables["split"]]
    tokens = [float(row["tokens"]) for row in tables["split"]]
    assert params[1] / params[0] == pytest.approx(100 ** (0.28 / 0.62))
    assert tokens[1] / tokens[0] == pytest.approx(100 ** (0.34 / 0.62))
    for n, d, row in zip(params, tokens, tables["split"], strict=True):
        assert 6 * n * d == pytest.approx(10 ** int(row["log10_flops"]))

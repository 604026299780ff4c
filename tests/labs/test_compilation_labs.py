"""Compilation: what TorchScript loses, what torch.compile counts, and that JAX computes the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from labs.running import small


def test_compilation(tmp_path: Path) -> None:
    tables = small("compilation", tmp_path)
    assert [(row["function"], row["of_minus_5"], row["right"]) for row in tables["torchscript"]] == [
        ("python", "-6.0", "True"), ("trace", "-10.0", "False"), ("script", "-6.0", "True"),
    ]  # fmt: skip
    rows = tables["table"]
    assert {row["right"] for row in rows} == {"True"}
    counted = {row["function"]: (int(row["breaks"]), int(row["compilations"])) for row in rows}
    assert counted["gelu, one size"] == (0, 1)
    assert counted["gelu, 12 sizes"] == (0, 2)
    assert counted["counts calls in Python"] == (0, 8)
    assert all(row["breaks"] == "1" for row in rows if row["regime"] == "a little work")
    assert all((row["breaks"], row["compilations"]) == ("0", "1") for row in rows if row["regime"] == "mended")
    assert [(row["function"], row["breaks"]) for row in tables["k_means"]] == [("nearest", "0"), ("move", "1")]


def test_jax_side_by_side(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="JAX is not installed: pip install 'vivace[jax]'")
    tables = small("jax_side_by_side", tmp_path)
    assert [int(row["numbers"]) for row in tables["agreement"]] == [1, 40, 40, 1600]
    assert all(float(row["of_largest"]) < 1e-5 for row in tables["agreement"])
    assert [row["traces"] for row in tables["traces"]] == ["1", "1", "1", "2", "2"]

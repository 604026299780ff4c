"""The price of bf16 on a CPU: by the size of the products, not by times that other work on the machine changes."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from practices.evidence import CPU, measurement

from vivace.practices.bf16 import find
from vivace.practices.engine.cpu_products import bf16_ratio, flop_per_product
from vivace.records.measurement import Measurement
from vivace.tune.checking import findings_of
from vivace.tune.probing import Causes

WITH_UNITS = CPU.model_copy(update={"has_bf16": True})
TABLE = Path(__file__).parents[3] / "benchmarks" / "results" / "bf16_cpu_sizes.csv"


def three_layers(width: int, batch: int, step_ms: float) -> Measurement:
    """Three products forward and five back, as a network of three linear layers has them."""
    calls = {"aten::mm": 5.0, "aten::addmm": 3.0}
    top = [
        {"name": n, "ms_per_step": 0.08 * step_ms * c, "calls_per_step": c, "share": 0.1 * c} for n, c in calls.items()
    ]
    flops = {"fp32": 8 * 2 * batch * width * width}
    return measurement(on_gpu=False, step_ms=step_ms, flops=flops, cpu=WITH_UNITS, profile={"top": top})


def test_the_flops_of_one_product():
    assert flop_per_product(three_layers(64, 128, 1.0)) == 2 * 128 * 64 * 64
    assert flop_per_product(measurement(on_gpu=False)) is None


@pytest.mark.parametrize("step_ms", [0.4, 160.0], ids=["quiet machine", "busy machine"])
def test_a_narrow_network_is_not_told_to_use_bf16(step_ms: float):
    """64 wide, 128 samples: 0.65 of the speed, measured."""
    narrow = three_layers(64, 128, step_ms)
    findings = findings_of(narrow, Causes(), "x")
    assert "bf16" not in [finding.practice for finding in findings.findings]
    (left_out,) = [finding for finding in findings.unlikely if finding.practice == "bf16"]
    assert left_out.likely == pytest.approx(0.65, abs=0.06)
    assert left_out.worth > 1.5


def test_a_wide_network_is():
    findings = findings_of(three_layers(1024, 512, 800.0), Causes(), "x")
    (found,) = [finding for finding in findings.findings if finding.practice == "bf16"]
    assert 1.6 < found.likely < 2.2
    assert not findings.unlikely or "bf16" not in [finding.practice for finding in findings.unlikely]


def test_where_the_products_were_not_seen_only_a_trial_tells():
    found = find(measurement(on_gpu=False, cpu=WITH_UNITS))
    assert found is not None
    assert found.likely is not None
    assert found.likely.low_ms < 0 < found.likely.ms


@given(st.floats(1e3, 1e12), st.floats(1.0, 1e3))
def test_a_larger_product_never_gains_less(flop: float, factor: float):
    assert bf16_ratio(flop) <= bf16_ratio(flop * factor)


def test_the_ratios_are_those_that_were_measured():
    with TABLE.open() as file:
        rows = list(csv.DictReader(file))
    for flop in {float(row["flop_per_product"]) for row in rows}:
        ratios = [float(row["ratio"]) for row in rows if float(row["flop_per_product"]) == flop]
        assert bf16_ratio(flop) == pytest.approx(statistics.median(ratios), rel=0.25)

"""The plan's section of the report: every part drawn to scale, text escaped, no outside resource."""

from __future__ import annotations

import re

import pytest

from vivace.records.layout import Layout
from vivace.records.plan import Plan, PlanInterval
from vivace.report.plan_html import plan_section, stacked_bar


def test_parts_are_drawn_to_scale():
    svg = stacked_bar({"parameters": 10.0, "activations": 30.0}, 80.0, "GiB")
    widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', svg)]
    assert widths == [pytest.approx(90.0), pytest.approx(270.0)]
    assert "parameters: 10.0 GiB" in svg


def test_names_are_escaped_and_nothing_is_loaded_from_outside():
    spread = PlanInterval(estimate=1.0, low=0.9, high=1.1)
    plan = Plan(
        model="<script>",
        parameters=1,
        cluster="c",
        gpu="g",
        gpus=1,
        gpus_per_node=1,
        nodes=1,
        layout=Layout(),
        global_batch=1,
        precision="bf16",
        optimizer="sgd",
        software="torch",
        memory_parts_gib={"parameters": 1.0},
        memory_gib=spread,
        available_gib=2.0,
        verdict="fits",
        step_parts_ms={"compute": 1.0},
        step_ms=spread,
        samples_per_s=1.0,
        tflops_per_gpu=1.0,
        mfu_pct=1.0,
        hfu_pct=1.0,
    )
    html = plan_section(plan)
    assert "&lt;script&gt;" in html
    assert "<script" not in html
    assert "http" not in html

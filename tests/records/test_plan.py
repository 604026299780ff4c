"""The Plan record goes to JSON and back, and cannot be changed."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from vivace.records.base import RecordError
from vivace.records.layout import Layout
from vivace.records.plan import Plan, PlanInterval


def interval(value: float) -> PlanInterval:
    return PlanInterval(estimate=value, low=0.9 * value, high=1.1 * value)


def plan(**changes) -> Plan:
    values = {
        "model": "m",
        "parameters": 10,
        "cluster": "c",
        "gpu": "g",
        "gpus": 8,
        "gpus_per_node": 8,
        "nodes": 1,
        "layout": Layout(data=4, tensor=2),
        "global_batch": 8,
        "precision": "bf16",
        "optimizer": "adamw",
        "software": "torch",
        "memory_parts_gib": {"parameters": 1.5},
        "memory_gib": interval(1.5),
        "available_gib": 80,
        "verdict": "fits",
        "step_parts_ms": {"compute": 3.0},
        "step_ms": interval(3.0),
        "samples_per_s": 1.0,
        "tflops_per_gpu": 1.0,
        "mfu_pct": 1.0,
        "hfu_pct": 1.0,
    }
    return Plan(**{**values, **changes})


def test_round_trip(tmp_path):
    first = plan(assumptions=("a",))
    path = first.save(tmp_path / "plan.json")
    assert Plan.load(path) == first
    assert first.kind == "plan"


def test_a_plan_is_immutable_and_strict():
    with pytest.raises(ValidationError):
        plan().gpus = 3  # type: ignore[misc]
    with pytest.raises(ValidationError):
        plan(surprise=1)


def test_another_record_is_refused():
    with pytest.raises(RecordError):
        Plan.from_json('{"kind": "measurement", "schema_version": 1}')


def test_gpus_of_a_layout():
    assert Layout(data=4, tensor=2, pipeline=3).gpus == 24

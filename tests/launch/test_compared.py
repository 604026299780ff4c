"""Planned against achieved, and what a job's folder tells about it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vivace.launch.achieved import Achieved, newest_measurement, newest_proof, of_measurement, records_folder
from vivace.launch.compared import compare, why_not_alike
from vivace.records.measurement import Measurement
from vivace.records.plan import Plan
from vivace.records.proof import Gain, Interval, Proof

PLAN_WORDS = ("plan", "resnet50", "--cluster", "jean-zay-v100-32g", "--gpus", "4", "--epochs", "1", "--save", "p.json")


@pytest.fixture
def plan(vivace_here: Callable, tmp_path: Path) -> Plan:
    done = vivace_here(*PLAN_WORDS)
    assert done.code == 0, done.err
    return Plan.load(tmp_path / "p.json")


def test_every_figure_that_both_sides_know(plan: Plan):
    assert plan.run is not None
    achieved = Achieved(source="x", step_ms=2 * plan.step_ms.high, samples_per_s=1000.0, mfu_pct=12.5)
    rows = {row.what: row for row in compare(plan, achieved, 100.0, 3.6e6)}
    assert list(rows) == ["step", "throughput", "MFU", "time", "energy"]
    assert rows["step"].sentence.endswith("ms: above the range")
    assert rows["throughput"].sentence == f"planned {plan.samples_per_s:,.0f} samples/s, got 1,000 samples/s"
    assert rows["MFU"].sentence == f"planned {plan.mfu_pct:.3g} %, got 12.5 %"
    assert rows["time"].planned == plan.run.days.estimate * 86_400
    assert rows["time"].sentence.endswith("got 00:01:40: below the range")
    assert (rows["energy"].achieved, rows["energy"].planned) == (1.0, plan.run.energy_mwh.estimate * 1000)


def test_what_one_side_does_not_know_is_left_out(plan: Plan):
    assert compare(plan, None, None, None) == []
    assert [row.what for row in compare(plan, Achieved(source="x", step_ms=1.0), None, None)] == ["step"]
    assert [row.what for row in compare(plan.model_copy(update={"run": None}), None, 5.0, 5.0)] == []


def test_unlike_jobs_are_not_compared(plan: Plan):
    assert why_not_alike(plan, 4, Achieved(source="x", global_batch=plan.global_batch)) is None
    assert why_not_alike(plan, 4, None) is None
    assert why_not_alike(plan, 8, None) == "planned for 4 GPUs, and sent to 8: not compared"
    assert "trained with 7" in (why_not_alike(plan, 4, Achieved(source="x", global_batch=7)) or "")


def measurement(vivace: Callable, **changes: Any) -> Measurement:
    done = vivace("measure", "--json", "--quiet", "--steps", "3", "--warmup", "2", "--no-profile")
    return Measurement.from_json(done.out).model_copy(update=changes)


def test_the_newest_whole_record_in_the_jobs_folder_counts(vivace_here: Callable, tmp_path: Path):
    record = measurement(vivace_here, mfu=0.57, samples_per_s=123.0)
    for name, age_s in (("train-7.0", 20), ("train-7.0.1", 10), ("damaged", 0)):
        file = tmp_path / "job" / name / "measurement.json"
        file.parent.mkdir(parents=True)
        file.write_text("{" if name == "damaged" else record.to_json())
        os.utime(file, (1e9 - age_s, 1e9 - age_s))
    found = newest_measurement(tmp_path / "job")
    assert found is not None
    assert found[1].parent.name == "train-7.0.1"
    achieved = of_measurement(found[0], "x")
    assert achieved.mfu_pct == pytest.approx(57)
    assert (achieved.samples_per_s, achieved.joules_per_sample) == (123.0, None)
    assert "not measured" in (achieved.energy_how or "")
    assert newest_measurement(tmp_path / "nowhere") is None


def test_the_tasks_of_an_array_have_their_own(tmp_path: Path):
    assert records_folder(str(tmp_path), "17") == tmp_path
    assert records_folder(str(tmp_path), "17_3") == tmp_path / "17_3"


def test_a_proof_is_found_too(tmp_path: Path):
    speedup = Interval(median=1.8, low=1.7, high=1.9)
    proof = Proof(command=("x",), speedup=speedup, practices=(Gain(practice="bf16", risk="rounding"),), trials=())
    (tmp_path / "tuned-001").mkdir()
    proof.save(tmp_path / "tuned-001" / "proof.json")
    found = newest_proof(tmp_path)
    assert found is not None
    assert json.loads(found[1].read_text())["speedup"]["median"] == found[0].speedup.median == 1.8

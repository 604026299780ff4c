"""Records are immutable, go to JSON and back, and bad files get one clear sentence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from vivace.files import write_text_atomically
from vivace.records.base import Record, RecordError
from vivace.records.finding import Finding, Findings, Place, Risk
from vivace.records.proof import Gain, Interval, Proof
from vivace.records.run import Run
from vivace.records.trial import Trial

floats = st.floats(allow_nan=False)


class Sample(Record):
    KIND: ClassVar[str] = "sample"
    VERSION: ClassVar[int] = 2
    step_ms: float
    note: str = ""


@given(floats, st.text())
def test_json_round_trip(step_ms: float, note: str):
    record = Sample(step_ms=step_ms, note=note)
    assert Sample.from_json(record.to_json()) == record


def test_nan_survives():
    assert math.isnan(Sample.from_json(Sample(step_ms=math.nan).to_json()).step_ms)


@given(st.lists(st.floats(1, 100), min_size=1, max_size=4), st.sampled_from(Risk))
def test_findings_round_trip(worths: list[float], risk: Risk):
    found = tuple(
        Finding(
            practice="p",
            exposed_ms=1.0,
            worth=w,
            risk=risk,
            where=Place(file="t.py", line=3),
            evidence={"ms": 2.5},
            applies=True,
        )
        for w in worths
    )
    record = Findings(measurement="runs/x", findings=found, verdict="improvable")
    assert Findings.from_json(record.to_json()) == record


def test_the_other_records_round_trip():
    interval = Interval(median=2.0, low=1.9, high=2.1)
    gain = Gain(practice="bf16", risk=Risk.ROUNDING, alone=interval)
    records = [
        Proof(command=("python", "t.py"), speedup=interval, practices=(gain,), trials=("a",)),
        Trial(name="t", command=("x",), practices=("bf16",), outcome="out-of-memory", seconds=3.5, message="no room"),
        Run(command=("x",), launcher="slurm", job_id="12", state="queued", folder="runs/x"),
    ]
    for record in records:
        assert type(record).from_json(record.to_json()) == record


def test_a_record_cannot_be_changed():
    with pytest.raises(ValidationError):
        Sample(step_ms=1.0).step_ms = 2.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schema_version": 3}, "newer vivace"),
        ({"schema_version": "2"}, "damaged: schema_version"),
        ({"kind": "plan"}, "holds a plan, not a sample"),
        ({"step_ms": "fast"}, "damaged: step_ms"),
        ({"unknown": 1}, "damaged: unknown"),
    ],
)
def test_a_bad_record_is_named_in_one_sentence(change: dict, sentence: str):
    data = json.loads(Sample(step_ms=1.0).to_json())
    with pytest.raises(RecordError, match=sentence):
        Sample.from_json(json.dumps({**data, **change}), "file.json")


def ascii_start(text: str) -> str:
    return ascii(text[:10])


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "\x00", "[" * 200_000, '{"a":' * 200_000], ids=ascii_start)
def test_damaged_text_is_a_record_error(text: str):
    with pytest.raises(RecordError, match="damaged"):
        Sample.from_json(text)


def test_a_truncated_file_is_a_record_error(tmp_path: Path):
    path = Sample(step_ms=1.0).save(tmp_path / "r.json")
    path.write_text(path.read_text()[:-10])
    with pytest.raises(RecordError, match="damaged"):
        Sample.load(path)
    with pytest.raises(RecordError, match="does not exist"):
        Sample.load(tmp_path / "absent.json")


def test_saving_replaces_the_whole_file_and_leaves_nothing_behind(tmp_path: Path):
    path = tmp_path / "r.json"
    write_text_atomically(path, "old")
    Sample(step_ms=1.0).save(path)
    assert Sample.load(path).step_ms == 1.0
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]

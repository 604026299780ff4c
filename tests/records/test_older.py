"""Records that an earlier vivace wrote still load, and say the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from practices.evidence import measurement

from vivace.protocol.answers import NOT_MET, PracticeAnswer, PracticeState
from vivace.protocol.ending import Ending
from vivace.records.base import RecordError
from vivace.records.finding import Findings
from vivace.records.measurement import Measurement
from vivace.records.plan import Plan
from vivace.records.proof import Proof, Rejected, Rejection
from vivace.records.run import Run
from vivace.records.search import BatchSearch, LoaderSearch
from vivace.records.trial import Trial

ROOT = Path(__file__).parents[2]

OLD = {
    "kind": "run",
    "schema_version": 1,
    "command": ["python", "train.py"],
    "launcher": "local",
    "state": "completed",
    "folder": "runs/train-001",
}


@pytest.mark.parametrize(
    ("sentence", "state", "text"),
    [
        ("applied: AdamW(fused=True)", PracticeState.APPLIED, "AdamW(fused=True)"),
        ("applied", PracticeState.APPLIED, ""),
        ("applied by the script itself", PracticeState.REFUSED, "applied by the script itself"),
        (NOT_MET.text, PracticeState.NOT_MET, NOT_MET.text),
        ("could not be applied: OSError: x", PracticeState.FAILED, "could not be applied: OSError: x"),
        ("needs workers", PracticeState.REFUSED, "needs workers"),
    ],
)
def test_the_sentence_about_a_practice_becomes_an_answer(sentence: str, state: PracticeState, text: str):
    run = Run.from_json(json.dumps({**OLD, "told": {"a": sentence}}))
    assert run.told == {"a": PracticeAnswer(state, text)}
    assert str(run.told["a"]) == sentence
    assert Run.from_json(run.to_json()) == run
    assert json.loads(run.to_json())["told"] == {"a": {"state": str(state), "text": text}}


def test_an_answer_with_an_unknown_state_is_damage():
    with pytest.raises(RecordError, match=r"told\.a"):
        Run.from_json(json.dumps({**OLD, "schema_version": 2, "told": {"a": {"state": "odd", "text": ""}}}))


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        ("the script ended by itself", Ending.ENDED_BY_ITSELF),
        ("rank 1: the script ended by itself", Ending.ENDED_BY_ITSELF),
        ("out of memory: CUDA out of memory. Tried to allocate 2 GiB", Ending.OUT_OF_MEMORY),
        ("the script crashed: ValueError: no such file", Ending.CRASHED),
        ("the script crashed: RuntimeError: interrupted system call", Ending.CRASHED),
        ("interrupted (Ctrl-C)", Ending.INTERRUPTED),
        ("stopped by vivace: the time given by --timeout was over", Ending.TIMEOUT),
        ("killed (SIGKILL); the kernel kills a process that takes too much memory", Ending.KILLED),
        ("the command ended with exit code 3", Ending.FAILED),
        ("ranks 1-3 of 4 did not report", Ending.RANKS_MISSING),
        (None, None),
    ],
)
def test_the_reason_of_a_partial_measurement_gets_its_kind(reason: str | None, ending: Ending | None):
    fields = json.loads(measurement(status="partial", reason=reason).to_json())
    del fields["ending"]
    old = Measurement.from_json(json.dumps({**fields, "schema_version": 1}))
    assert (old.reason, old.ending) == (reason, ending)
    assert Measurement.from_json(old.to_json()) == old


def test_a_practice_that_was_not_tried_is_known_by_its_reason():
    old = Rejected.model_validate({"practice": "bf16", "why": "not tried: too little time was left for it"})
    assert old.reason is Rejection.NOT_TRIED
    assert Rejected.model_validate({"practice": "bf16", "why": "1.00× (within the noise)"}).reason is None
    assert Rejected(practice="bf16", reason=Rejection.HARMFUL, why="not tried again").reason is Rejection.HARMFUL


def test_every_record_on_file_loads():
    kinds = {kind.KIND: kind for kind in (BatchSearch, Findings, LoaderSearch, Measurement, Plan, Proof, Run, Trial)}
    loaded = 0
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        value = json.loads(path.read_text())
        if isinstance(value, dict) and value.get("kind") in kinds:
            record = kinds[value["kind"]].load(path)
            assert type(record).from_json(record.to_json()) == record
            loaded += 1
    assert loaded > 0

"""Records that an earlier vivace wrote still load, and say the same."""

from __future__ import annotations

import json

import pytest

from vivace.protocol.answers import NOT_MET, PracticeAnswer, PracticeState
from vivace.records.base import RecordError
from vivace.records.run import Run

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

"""What the process says about a practice arrives as it was said."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.practices.engine.change import Change
from vivace.practices.engine.parts import Parts
from vivace.protocol.answers import NOT_MET, PracticeAnswer, PracticeState, answers_from_text, answers_to_text

ANSWERS = st.builds(PracticeAnswer, st.sampled_from(PracticeState), st.text())


@given(st.dictionaries(st.text(), ANSWERS))
def test_answers_survive_the_file(answers: dict[str, PracticeAnswer]):
    assert answers_from_text(answers_to_text(answers)) == answers


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (PracticeAnswer(PracticeState.APPLIED, "AdamW(fused=True)"), "applied: AdamW(fused=True)"),
        (PracticeAnswer(PracticeState.APPLIED), "applied"),
        (PracticeAnswer(PracticeState.REFUSED, "applied by the script itself"), "applied by the script itself"),
        (NOT_MET, "the script never made a part that it changes"),
    ],
)
def test_an_answer_reads_as_a_sentence(answer: PracticeAnswer, sentence: str):
    assert str(answer) == sentence
    assert answer.applied == (answer.state is PracticeState.APPLIED)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"bf16": "applied: so"}', '{"bf16": {"state": "applied"}}', '{"bf16": {"state": "odd", "text": ""}}'],
)
def test_what_is_no_answer_is_refused(text: str):
    with pytest.raises(ValueError, match=r".+"):
        answers_from_text(text)


def test_states_go_to_json_as_their_words():
    assert json.dumps(list(PracticeState)) == '["applied", "refused", "not met", "failed"]'
    assert f"{PracticeState.NOT_MET}" == "not met"


class _Breaks(Change):
    def flags(self) -> None:
        raise RuntimeError("no such switch")


def test_an_error_of_the_practice_itself_is_a_failure():
    change = _Breaks()
    assert change.answer() == NOT_MET
    Parts([change]).set_flags()
    answer = change.answer()
    assert answer.state is PracticeState.FAILED
    assert answer.text.startswith("could not be applied: ")
    assert "no such switch" in answer.text

"""What the process answers about each practice that it was asked for: applied, refused, not met or failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vivace.protocol.text_enum import TextEnum

__all__ = ["NOT_MET", "PracticeAnswer", "PracticeState", "answers_from_text", "answers_to_text"]


class PracticeState(TextEnum):
    """What became of a practice."""

    APPLIED = "applied"
    REFUSED = "refused"
    """It does not suit this script; the text says why."""
    NOT_MET = "not met"
    """The script never made a part that the practice changes."""
    FAILED = "failed"
    """The practice's own error; the training went on without it."""


@dataclass(frozen=True)
class PracticeAnswer:
    """``text``: what was changed, or why nothing was."""

    state: PracticeState
    text: str = ""

    @property
    def applied(self) -> bool:
        return self.state is PracticeState.APPLIED

    def __str__(self) -> str:
        """The answer as a sentence: "applied: AdamW(fused=True)", or the reason."""
        if not self.applied:
            return self.text
        return f"applied: {self.text}" if self.text else "applied"

    def to_json(self) -> dict[str, str]:
        return {"state": self.state.value, "text": self.text}

    @classmethod
    def from_json(cls, value: Any) -> PracticeAnswer:
        """Raises ``ValueError`` for anything that ``to_json`` does not write."""
        if not isinstance(value, dict) or not isinstance(value.get("text"), str):
            raise ValueError(f"not an answer about a practice: {value!r}")
        return cls(PracticeState(value.get("state")), value["text"])


NOT_MET = PracticeAnswer(PracticeState.NOT_MET, "the script never made a part that it changes")


def answers_to_text(answers: Mapping[str, PracticeAnswer]) -> str:
    return json.dumps({word: answer.to_json() for word, answer in answers.items()})


def answers_from_text(text: str) -> dict[str, PracticeAnswer]:
    """Raises ``ValueError`` for a file that is damaged or of another version."""
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError(f"not answers about practices: {values!r}")
    return {word: PracticeAnswer.from_json(value) for word, value in values.items()}

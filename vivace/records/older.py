"""Reads what an earlier vivace wrote as a sentence. The only place that looks into such sentences."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from vivace.protocol.answers import NOT_MET, PracticeAnswer, PracticeState

__all__ = ["Answer"]

_APPLIED = "applied"
_COULD_NOT = "could not be applied: "


def _answer(value: Any) -> Any:
    """Records of schema 1 hold "applied: …", or the reason why not."""
    if not isinstance(value, str):
        return value
    if value == _APPLIED or value.startswith(f"{_APPLIED}: "):
        return PracticeAnswer(PracticeState.APPLIED, value[len(_APPLIED) + 2 :])
    if value == NOT_MET.text:
        return NOT_MET
    state = PracticeState.FAILED if value.startswith(_COULD_NOT) else PracticeState.REFUSED
    return PracticeAnswer(state, value)


Answer = Annotated[PracticeAnswer, BeforeValidator(_answer)]
"""What became of a practice, in a record."""

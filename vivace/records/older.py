"""Reads what an earlier vivace wrote as a sentence. The only place that looks into such sentences."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from vivace.protocol.answers import NOT_MET, PracticeAnswer, PracticeState
from vivace.protocol.ending import Ending

__all__ = ["Answer", "measurement", "rejected"]

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


_ENDINGS = (  # what a reason contains, the most telling first
    ("out of memory", Ending.OUT_OF_MEMORY),
    ("can't allocate memory", Ending.OUT_OF_MEMORY),
    ("the script crashed", Ending.CRASHED),
    ("interrupted", Ending.INTERRUPTED),
    ("time given by --timeout", Ending.TIMEOUT),
    ("too much memory", Ending.KILLED),
    ("vivace's own error", Ending.OWN_ERROR),
    ("the script ended by itself", Ending.ENDED_BY_ITSELF),
    ("did not report", Ending.RANKS_MISSING),
)


def measurement(fields: Any) -> Any:
    """A measurement that says why it is partial in a sentence only."""
    if not isinstance(fields, dict) or "ending" in fields or not isinstance(fields.get("reason"), str):
        return fields
    reason = fields["reason"].lower()
    kinds = (kind for words, kind in _ENDINGS if words in reason)
    return {**fields, "ending": next(kinds, Ending.FAILED)}


def rejected(fields: Any) -> Any:
    """A practice that was left out. Only "not tried" was ever decided on."""
    if not isinstance(fields, dict) or "reason" in fields:
        return fields
    return {**fields, "reason": "not tried" if str(fields.get("why")).startswith("not tried") else None}

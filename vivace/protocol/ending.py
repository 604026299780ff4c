"""Why a measurement ended before it was whole: a kind to decide on, beside the sentence for the reader."""

from __future__ import annotations

import json
from dataclasses import dataclass

from vivace.protocol.text_enum import TextEnum

__all__ = ["ENDED_BY_ITSELF", "TIME_OVER", "Ended", "Ending"]


class Ending(TextEnum):
    ENDED_BY_ITSELF = "ended by itself"
    """The script had fewer steps than were asked for, and ended well."""
    OUT_OF_MEMORY = "out of memory"
    CRASHED = "crashed"
    """An exception of the script's own."""
    INTERRUPTED = "interrupted"
    TIMEOUT = "timeout"
    KILLED = "killed"
    FAILED = "failed"
    """An exit code other than 0, and nothing more is known."""
    RANKS_MISSING = "ranks missing"
    OWN_ERROR = "vivace's own error"
    OTHER_VIVACE = "another vivace"
    """The process has a vivace of its own, which speaks another version of this protocol."""
    CANNOT_MEASURE = "cannot be measured"
    """vivace could not be put into the process: its Python or its torch is too old, or unknown to this vivace."""


@dataclass(frozen=True)
class Ended:
    """``text``: the reason in a sentence."""

    kind: Ending
    text: str

    def to_text(self) -> str:
        return json.dumps({"kind": self.kind, "text": self.text})

    @classmethod
    def from_text(cls, text: str) -> Ended:
        """Raises ``ValueError`` for anything that ``to_text`` does not write."""
        value = json.loads(text)
        if not isinstance(value, dict) or not isinstance(value.get("text"), str):
            raise ValueError(f"not a reason to end: {text!r}")
        return cls(Ending(value.get("kind")), value["text"])


ENDED_BY_ITSELF = Ended(Ending.ENDED_BY_ITSELF, "the script ended by itself")
TIME_OVER = Ended(Ending.TIMEOUT, "stopped by vivace: the time given by --timeout was over")

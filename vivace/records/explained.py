"""``Explained``: another tool's configuration, key by key, in terms of vivace, and the commands that correspond."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from vivace.records.base import Part, Record
from vivace.records.layout import Layout

__all__ = ["Answer", "Explained", "ExplainedKey"]


class Answer(StrEnum):
    TRANSLATED = "translated"
    NOT_NEEDED = "not needed"
    """vivace has nothing to set here, for the reason beside it."""
    NOT_SUPPORTED = "not supported"
    AUTO = "auto"
    """Whoever starts DeepSpeed fills it in (Hugging Face's Trainer): nobody can know it from the file."""
    UNKNOWN = "unknown"


class ExplainedKey(Part):
    key: str
    value: str
    answer: Answer
    ours: str = Field("", description="what to set in vivace")
    why: str = ""


class Explained(Record):
    KIND = "explained"

    source: str
    tool: str = "DeepSpeed"
    ranks: int
    keys: tuple[ExplainedKey, ...]
    layout: Layout
    settings: tuple[str, ...] = Field(description="changes to the settings of vivace train, as --set takes them")
    practices: tuple[str, ...] = Field(description="for vivace run, on a script without DeepSpeed")
    train_command: str
    run_command: str
    notes: tuple[str, ...] = ()

    def count(self, answer: Answer) -> int:
        return sum(one.answer is answer for one in self.keys)

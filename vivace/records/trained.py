"""``Trained``: what ``vivace train`` came to. Written beside its metrics, read by ``status``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from vivace.records.base import Record
from vivace.records.layout import Layout

__all__ = ["Trained"]


class Trained(Record):
    KIND: ClassVar[str] = "trained"

    model: str
    layout: Layout
    processes: int
    nodes: int
    device: str
    backend: str
    parameters: int
    global_batch: int
    tokens_per_sample: int | None = Field(None, description="None for image models")
    steps: int = Field(description="steps done in all, with those before a resume")
    final_loss: float
    step_ms: float | None = Field(None, description="median between two logs, without the first steps")
    step_ms_low: float | None = Field(None, description="first quartile")
    step_ms_high: float | None = Field(None, description="third quartile")

    @property
    def samples_per_s(self) -> float | None:
        return None if self.step_ms is None else 1000 * self.global_batch / self.step_ms

    @property
    def tokens_per_s(self) -> float | None:
        if self.samples_per_s is None or self.tokens_per_sample is None:
            return None
        return self.samples_per_s * self.tokens_per_sample

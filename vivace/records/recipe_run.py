"""``RecipeRun``: what ``vivace train RECIPE`` came to. Written beside its metrics."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from vivace.records.base import Record

__all__ = ["RecipeRun"]


class RecipeRun(Record):
    KIND: ClassVar[str] = "recipe-run"

    recipe: str
    model: str
    processes: int
    device: str
    parameters: int
    steps: int = Field(description="done in all, with those before a resume")
    epochs: float
    samples: int
    seconds: float = Field(
        description="from the first step on, with validation and saving; with what was before a resume"
    )
    final_loss: float | None = Field(None, description="mean of the steps of the last line")
    val_loss: float | None = None
    val_accuracy: float | None = Field(None, description="top-1; None where targets are no classes")
    step_ms: float | None = Field(None, description="median over lines, without the first and without validation")
    step_ms_low: float | None = Field(None, description="first quartile")
    step_ms_high: float | None = Field(None, description="third quartile")
    samples_per_s: float | None = None
    mfu: float | None = Field(None, description="None where the peak of the hardware is not known")
    energy_j: float | None = Field(None, description="of the first rank's GPU; None without a meter")
    skipped_images: int = Field(0, description="unreadable; named in skipped.txt")
    skipped_steps: int = Field(0, description="by faults.nan or faults.spike")
    spikes: int = 0

"""``Course``: what happens at which step. Every duration of a recipe becomes a number of steps here.

Epochs may differ in length: a phase may have another batch. All answers follow from the step alone, so a training that
goes on from a checkpoint needs nothing but the step. Needs no torch.

>>> course = Course(samples=100, tokens_per_sample=None, batch=10, image_size=32)
>>> course.steps_of(Duration.parse("2.5ep")), course.place(12)
(25, Place(epoch=1, first=20))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vivace.durations import Duration, DurationUnit
from vivace.errors import UserError
from vivace.recipes.recipe import Phase

__all__ = ["Course", "Place"]


@dataclass(frozen=True)
class Place:
    """A step's samples are those from number ``first`` on, in the order of ``epoch``."""

    epoch: int
    first: int


@dataclass(frozen=True)
class _Stretch:
    """Epochs of one kind, from ``epoch`` (at ``step``) on."""

    epoch: int
    step: int
    steps_per_epoch: int
    batch: int
    image_size: int
    rate: float


class Course:
    def __init__(
        self,
        samples: int,
        tokens_per_sample: int | None,
        batch: int,
        image_size: int,
        phases: Sequence[Phase] = (),
    ) -> None:
        self.samples, self.tokens_per_sample = samples, tokens_per_sample
        starts = {int(phase.start.amount): phase for phase in phases}
        self._stretches: list[_Stretch] = []
        for epoch in sorted({0, *starts}):
            phase = starts.get(epoch)
            size = (phase.image_size if phase else None) or image_size
            of_phase = (phase.batch if phase else None) or batch
            if samples < of_phase:
                key = "batch" if of_phase == batch else f"phases: batch {of_phase}"
                raise UserError(
                    f"{key}: {of_phase} samples are more than the {samples} of an epoch", hint="a smaller batch"
                )
            before = self._stretches[-1] if self._stretches else None
            step = before.step + (epoch - before.epoch) * before.steps_per_epoch if before else 0
            rate = phase.lr if phase else 1.0
            self._stretches.append(_Stretch(epoch, step, samples // of_phase, of_phase, size, rate))

    def _stretch(self, step: int) -> _Stretch:
        return next(each for each in reversed(self._stretches) if each.step <= step)

    def place(self, step: int) -> Place:
        stretch = self._stretch(step)
        epochs, within = divmod(step - stretch.step, stretch.steps_per_epoch)
        return Place(stretch.epoch + epochs, within * stretch.batch)

    def batch(self, step: int) -> int:
        return self._stretch(step).batch

    def image_size(self, step: int) -> int:
        return self._stretch(step).image_size

    def rate(self, step: int) -> float:
        """Factor of the learning rate."""
        return self._stretch(step).rate

    def largest_batch(self) -> int:
        return max(each.batch for each in self._stretches)

    def epoch(self, step: int) -> float:
        """Epochs done after ``step`` steps, with a fraction."""
        stretch = self._stretch(step)
        return stretch.epoch + (step - stretch.step) / stretch.steps_per_epoch

    def samples_before(self, step: int) -> int:
        """Samples seen in ``step`` steps."""
        seen = 0
        for stretch, after in zip(self._stretches, [*self._stretches[1:], None], strict=True):
            until = step if after is None else min(step, after.step)
            seen += max(0, until - stretch.step) * stretch.batch
        return seen

    def steps_of(self, duration: Duration) -> int:
        """From the start; rounded to the nearest step, at least 1. Not for times."""
        if duration.unit is DurationUnit.STEPS:
            return max(1, round(duration.amount))
        if duration.unit is DurationUnit.EPOCHS:
            return max(1, self._steps_of_epochs(duration.amount))
        if duration.unit is DurationUnit.TOKENS:
            if self.tokens_per_sample is None:
                raise UserError(
                    f"{duration} counts tokens, and the data are not tokens", hint="37ep, 500ba, 1e6samples"
                )
            return self._steps_of_samples(duration.amount / self.tokens_per_sample)
        assert duration.unit is DurationUnit.SAMPLES, "a time is no number of steps"
        return self._steps_of_samples(duration.amount)

    def _steps_of_epochs(self, epochs: float) -> int:
        stretch = next(each for each in reversed(self._stretches) if each.epoch <= epochs)
        return stretch.step + round((epochs - stretch.epoch) * stretch.steps_per_epoch)

    def _steps_of_samples(self, samples: float) -> int:
        stretch = next(each for each in reversed(self._stretches) if self.samples_before(each.step) <= samples)
        return max(1, stretch.step + math.ceil((samples - self.samples_before(stretch.step)) / stretch.batch))

    def is_due(self, every: Duration, step: int) -> bool:
        """Whether something that happens every so often happens after ``step`` steps."""
        if every.unit is DurationUnit.EPOCHS:
            before, now = self.epoch(step - 1) / every.amount, self.epoch(step) / every.amount
            return math.floor(now + 1e-9) > math.floor(before + 1e-9)
        if every.unit is DurationUnit.STEPS:
            return step % max(1, round(every.amount)) == 0
        per = every.amount / (self.tokens_per_sample or 1 if every.unit is DurationUnit.TOKENS else 1)
        return math.floor(self.samples_before(step) / per) > math.floor(self.samples_before(step - 1) / per)

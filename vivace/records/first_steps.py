"""``FirstSteps``: the first optimizer steps of a run, in a few hundred numbers. Made by measure, compared by tune."""

from __future__ import annotations

from pydantic import Field

from vivace.records.base import Part

__all__ = ["FirstStep", "FirstSteps", "Forward"]


class Forward(Part):
    """One call of a model with gradients on: a digest of its inputs, and how its norms and dropouts were set."""

    after_steps: int = Field(description="optimizer steps that were looked at before it")
    digest: str
    norms_training: int
    norms_evaluating: int
    dropouts: int
    dropout_sum: float = Field(description="of the probabilities, over the modules in training mode")


class FirstStep(Part):
    """One step of one optimizer. Gradients and updates (what the weights have changed by when the next step begins) are
    random-sign sketches: of an optimizer's first step one for each part (neighbouring parameters), of a later step a
    single one. There is no update where the next step was not looked at."""

    optimizer: int
    parameters: int
    trainable: int
    dtypes: tuple[str, ...]
    without_gradient: int
    zero_gradient: int
    unchanged: int | None = Field(None, description="parameters with a gradient that the step left as they were")
    stand_still: tuple[str, ...] = Field((), description="the first of them, by name")
    part_names: tuple[str, ...]
    norms: tuple[float, ...] = Field(description="of the gradient, by part")
    gradient: tuple[tuple[float, ...], ...]
    update: tuple[tuple[float, ...], ...] = ()
    gradient_digest: str
    update_digest: str | None = None
    settings: tuple[dict[str, float], ...] = Field(description="the numbers among its settings, by parameter group")


class FirstSteps(Part):
    steps: tuple[FirstStep, ...]
    forwards: tuple[Forward, ...] = ()
    batches: tuple[tuple[str, ...], ...] = Field((), description="digests of the first batches, by loader")

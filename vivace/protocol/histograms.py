"""The magnitudes of a training's numbers, as a process tells the command: counts of values by their exponent."""

from __future__ import annotations

from dataclasses import dataclass, field

from vivace.protocol.text_enum import TextEnum

__all__ = ["BINS_PER_OCTAVE", "Numbers", "SeenHistogram", "SeenHistograms"]

BINS_PER_OCTAVE = 4


class Numbers(TextEnum):
    """Which numbers of a layer."""

    ACTIVATIONS = "activations"
    """What the layer returns."""
    ACTIVATION_GRADIENTS = "activation gradients"
    """The gradients of what it returns."""
    PARAMETER_GRADIENTS = "parameter gradients"
    """The gradients of its own parameters, before they are added up, clipped or unscaled."""


@dataclass(frozen=True)
class SeenHistogram:
    """``counts``: of finite values that are not zero. Bin n holds magnitudes from 2^(n//4 - 127) · (1 + n%4 / 4) on:
    the exponent of a float32 and the first two bits of its mantissa. The first count is that of bin ``first_bin``."""

    layer: str = ""
    numbers: Numbers = Numbers.ACTIVATIONS
    zeros: int = 0
    not_finite: int = 0
    first_bin: int = 0
    counts: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class SeenHistograms:
    """Over ``steps`` steps. ``loss_scale``: what a GradScaler multiplied the loss by; gradients are as it made them."""

    steps: int = 0
    loss_scale: float | None = None
    layers: list[SeenHistogram] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

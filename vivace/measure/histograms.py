"""From counts of magnitudes to what narrow formats would do to the numbers, and what loss scaling rescues."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from vivace.measure.number_formats import FORMATS, NumberFormat
from vivace.protocol.histograms import BINS_PER_OCTAVE, Numbers, SeenHistogram, SeenHistograms
from vivace.records.histograms import FormatShares, Histogram, Histograms, LossScaling, ScaleShares

__all__ = ["histograms"]

_BIAS = 127
_SCALES_LOG2 = range(25)  # a GradScaler begins at 2^16


def histograms(seen: SeenHistograms) -> Histograms:
    layers = [_Counted.of(one, _unscaled_bins(one, seen.loss_scale)) for one in seen.layers]
    together = [_together(layers, [kind]) for kind in Numbers if any(one.numbers is kind for one in layers)]
    gradients = _together(layers, [Numbers.ACTIVATION_GRADIENTS, Numbers.PARAMETER_GRADIENTS])
    return Histograms(
        steps=seen.steps,
        loss_scale=seen.loss_scale,
        together=tuple(one.record(None) for one in together),
        scaling=tuple(_scaling(gradients.bins, one) for one in FORMATS) if gradients.bins else (),
        layers=tuple(one.record(one.layer) for one in layers),
        notes=tuple(seen.notes),
    )


def _unscaled_bins(seen: SeenHistogram, loss_scale: float | None) -> int:
    """By how many bins the factor of a GradScaler, a power of two, has moved the counts."""
    if loss_scale is None or loss_scale <= 0 or seen.numbers is Numbers.ACTIVATIONS:
        return 0
    return round(math.log2(loss_scale)) * BINS_PER_OCTAVE


class _Counted:
    """Counts by bin; bin 0 begins at 2^-127."""

    def __init__(self, layer: str, numbers: Numbers, zeros: int, not_finite: int, bins: Counter[int]) -> None:
        self.layer, self.numbers = layer, numbers
        self.zeros, self.not_finite, self.bins = zeros, not_finite, bins

    @classmethod
    def of(cls, seen: SeenHistogram, moved: int) -> _Counted:
        bins = Counter({seen.first_bin - moved + place: count for place, count in enumerate(seen.counts) if count})
        return cls(seen.layer, seen.numbers, seen.zeros, seen.not_finite, bins)

    def record(self, layer: str | None) -> Histogram:
        octaves: Counter[int] = Counter()
        for place, count in self.bins.items():
            octaves[_octave(place)] += count
        first, last = (min(octaves), max(octaves)) if octaves else (0, -1)
        return Histogram(
            layer=layer,
            numbers=self.numbers,
            values=self.bins.total(),
            zeros=self.zeros,
            not_finite=self.not_finite,
            first_octave=first,
            counts=tuple(octaves[octave] for octave in range(first, last + 1)),
            formats=tuple(_in_format(self.bins, one) for one in FORMATS),
        )


def _together(layers: Iterable[_Counted], kinds: list[Numbers]) -> _Counted:
    parts = [one for one in layers if one.numbers in kinds]
    bins: Counter[int] = Counter()
    for part in parts:
        bins.update(part.bins)
    return _Counted("", kinds[0], sum(p.zeros for p in parts), sum(p.not_finite for p in parts), bins)


def _octave(place: int) -> int:
    return place // BINS_PER_OCTAVE - _BIAS


def _first_overflowing(form: NumberFormat) -> int:
    """The first bin that begins at the largest number or above."""
    mantissa, exponent = math.frexp(form.largest)
    quarters = math.ceil((2 * mantissa - 1) * BINS_PER_OCTAVE)
    return (exponent - 1 + _BIAS) * BINS_PER_OCTAVE + quarters


def _shares(bins: Counter[int], form: NumberFormat, scale_log2: int) -> tuple[float, float, float]:
    """Lost, subnormal and overflowing, of values that are multiplied by a power of two first."""
    total, over = bins.total(), _first_overflowing(form)
    lost = subnormal = overflow = 0
    for place, count in bins.items():
        scaled = place + scale_log2 * BINS_PER_OCTAVE
        octave = _octave(scaled)
        lost += count if octave < form.smallest_log2 else 0
        subnormal += count if form.smallest_log2 <= octave < form.normal_log2 else 0
        overflow += count if scaled >= over else 0
    return (lost / total, subnormal / total, overflow / total) if total else (0.0, 0.0, 0.0)


def _in_format(bins: Counter[int], form: NumberFormat) -> FormatShares:
    lost, subnormal, overflow = _shares(bins, form, 0)
    return FormatShares(format=form.name, lost=lost, subnormal=subnormal, overflow=overflow)


def _scaling(bins: Counter[int], form: NumberFormat) -> LossScaling:
    scales = []
    for scale in _SCALES_LOG2:
        lost, subnormal, overflow = _shares(bins, form, scale)
        scales.append(ScaleShares(scale_log2=scale, lost=lost, subnormal=subnormal, overflow=overflow))
    fitting = [scale for scale in scales if scale.overflow == 0]
    best = min(fitting, key=lambda s: (s.lost, s.subnormal, s.scale_log2), default=None)
    return LossScaling(format=form.name, best_log2=best.scale_log2 if best else None, scales=tuple(scales))

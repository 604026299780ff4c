"""What the magnitudes of a training's numbers say, in sentences and figures for the terminal and the page."""

from __future__ import annotations

from vivace.protocol.histograms import Numbers
from vivace.records.histograms import FormatShares, Histogram, Histograms, LossScaling

__all__ = ["magnitudes", "share", "shares_in_words", "verdicts", "worst_layers"]

_SHOWN_LAYERS = 8


def share(value: float) -> str:
    """Zero is zero: a share that is not is never shown as one."""
    if value == 0:
        return "0"
    return f"{value:.1%}" if value >= 0.0005 else "<0.1%"


def magnitudes(histogram: Histogram) -> str:
    if not histogram.counts:
        return "–"
    return f"2^{histogram.first_octave} to 2^{histogram.first_octave + len(histogram.counts)}"


def shares_in_words(shares: FormatShares) -> str:
    return f"{share(shares.lost)} / {share(shares.subnormal)} / {share(shares.overflow)}"


def verdicts(record: Histograms) -> list[str]:
    """What each format would do to the gradients, and what loss scaling changes."""
    return [_verdict(scaling) for scaling in record.scaling]


def _verdict(scaling: LossScaling) -> str:
    alone = scaling.at(0)
    if alone.lost == alone.subnormal == alone.overflow == 0:
        return f"{scaling.format}: holds all gradients without loss scaling"
    lost = f"{scaling.format}: {share(alone.lost)} of the gradients' non-zero values are too small for it"
    if scaling.best_log2 is None:
        return f"{lost}, {share(alone.overflow)} are too large, and no loss scale avoids the overflow"
    if scaling.best_log2 == 0:
        return f"{lost}, and loss scaling rescues none"
    best = scaling.at(scaling.best_log2)
    return (
        f"{lost}; with the loss scaled by 2^{scaling.best_log2}, {share(best.lost)} are, "
        f"{share(best.subnormal)} are subnormal and none overflows"
    )


def worst_layers(record: Histograms) -> list[Histogram]:
    """Those that fp16 harms most: by what overflows, then by what is lost."""
    harmed = [one for one in record.layers if one.shares("fp16").overflow or one.shares("fp16").lost]
    return sorted(harmed, key=_harm, reverse=True)[:_SHOWN_LAYERS]


def _harm(histogram: Histogram) -> tuple[bool, float]:
    shares = histogram.shares("fp16")
    can_be_scaled = histogram.numbers is not Numbers.ACTIVATIONS
    return shares.overflow > 0 and not can_be_scaled, shares.overflow + shares.lost

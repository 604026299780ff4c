"""``Histograms``: how large a training's numbers are, and what narrow formats would do to them."""

from __future__ import annotations

from pydantic import Field

from vivace.protocol.histograms import Numbers
from vivace.records.base import Part

__all__ = ["FormatShares", "Histogram", "Histograms", "LossScaling", "ScaleShares"]


class FormatShares(Part):
    """Shares of the finite values that are not zero."""

    format: str
    lost: float = Field(description="below the format's smallest number")
    subnormal: float = Field(description="above that, but below the smallest number with all digits")
    overflow: float = Field(description="above the format's largest number")


class Histogram(Part):
    """``counts[n]``: values with a magnitude of at least 2^(first_octave + n) and less than twice that."""

    layer: str | None = Field(None, description="None: all layers together")
    numbers: Numbers
    values: int = Field(description="finite ones that are not zero")
    zeros: int
    not_finite: int
    first_octave: int
    counts: tuple[int, ...]
    formats: tuple[FormatShares, ...]

    def shares(self, name: str) -> FormatShares:
        return next(shares for shares in self.formats if shares.format == name)


class ScaleShares(Part):
    scale_log2: int
    lost: float
    subnormal: float
    overflow: float


class LossScaling(Part):
    """What multiplying the loss, and so all gradients, by powers of two does in a format.

    ``best_log2``: of the scales at which nothing overflows, the one that loses least, then the one that leaves fewest
    subnormal, then the smallest: it has most room for larger gradients. None: something overflows at every scale.
    """

    format: str
    best_log2: int | None
    scales: tuple[ScaleShares, ...]

    def at(self, scale_log2: int) -> ScaleShares:
        return next(scale for scale in self.scales if scale.scale_log2 == scale_log2)


class Histograms(Part):
    """Of the first rank, in steps of their own. Gradients are without the factor of a GradScaler."""

    steps: int
    loss_scale: float | None = Field(None, description="the factor of the script's GradScaler")
    together: tuple[Histogram, ...]
    scaling: tuple[LossScaling, ...] = Field((), description="of all gradients together")
    layers: tuple[Histogram, ...]
    notes: tuple[str, ...] = ()

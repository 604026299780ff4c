"""MixUp and CutMix on a whole batch, with labels that fit the pixels.

MixUp (Zhang et al., 2018) blends two images: λ of one, 1 - λ of the other. CutMix (Yun et al., 2019) pastes a rectangle
of the other image. λ is drawn from Beta(α, α) for each image. The label has the same shares as the picture: for CutMix
they are counted from the pixels that were pasted, so that a rectangle cut off at the edge counts for what is left of
it::

    images, targets = mixup(images, targets, classes=1000, alpha=0.2)
    loss = cross_entropy(model(images), targets)
"""

from __future__ import annotations

from typing import NamedTuple

import torch

__all__ = ["Mix", "cutmix", "cutmix_of", "mixup", "mixup_of", "shares_of_classes"]


class Mix(NamedTuple):
    """``share`` of each image is its own; the rest is that of image ``partner``."""

    images: torch.Tensor
    partner: torch.Tensor
    share: torch.Tensor


def mixup(
    images: torch.Tensor, targets: torch.Tensor, classes: int, alpha: float = 0.2, draws: torch.Generator | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mixed images, and targets as probabilities."""
    mix = mixup_of(images, alpha, draws)
    return mix.images, shares_of_classes(mix, targets, classes)


def cutmix(
    images: torch.Tensor, targets: torch.Tensor, classes: int, alpha: float = 1.0, draws: torch.Generator | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Images with a rectangle of another one, and targets as probabilities."""
    mix = cutmix_of(images, alpha, draws)
    return mix.images, shares_of_classes(mix, targets, classes)


def mixup_of(images: torch.Tensor, alpha: float = 0.2, draws: torch.Generator | None = None) -> Mix:
    share, partner = _share(images, alpha, draws), _partner(images, draws)
    own = share.view(-1, *[1] * (images.dim() - 1)).to(images.dtype)
    return Mix(torch.lerp(images[partner], images, own.expand_as(images)), partner, share)


def cutmix_of(images: torch.Tensor, alpha: float = 1.0, draws: torch.Generator | None = None) -> Mix:
    share, partner = _share(images, alpha, draws), _partner(images, draws)
    height, width = images.shape[-2:]
    side = (1 - share).sqrt()  # of the rectangle, in sides of the image: its area is 1 - λ
    inside = _between(height, side, draws).unsqueeze(-1) & _between(width, side, draws).unsqueeze(-2)
    mixed = torch.where(inside.unsqueeze(1), images[partner], images)
    return Mix(mixed, partner, 1 - inside.float().mean(dim=(-2, -1)))


def shares_of_classes(mix: Mix, targets: torch.Tensor, classes: int) -> torch.Tensor:
    """Probabilities, a row for each image."""
    hot = torch.nn.functional.one_hot(targets, classes).to(mix.share.dtype)
    return mix.share.unsqueeze(1) * hot + (1 - mix.share.unsqueeze(1)) * hot[mix.partner]


def _between(length: int, side: torch.Tensor, draws: torch.Generator | None) -> torch.Tensor:
    """For each image, which pixels of a line are in the rectangle: its middle is anywhere, its end may be cut off."""
    middle = torch.rand(len(side), generator=draws).to(side.device) * length
    pixels = torch.arange(length, device=side.device) + 0.5
    half = side * length / 2
    return (pixels >= (middle - half).unsqueeze(1)) & (pixels < (middle + half).unsqueeze(1))


def _share(images: torch.Tensor, alpha: float, draws: torch.Generator | None) -> torch.Tensor:
    """λ for each image. Beta as a ratio of Gammas, drawn on the host: no wait for the GPU."""
    one, other = torch._standard_gamma(torch.full((2, len(images)), float(alpha)), generator=draws)
    return (one / (one + other).clamp(min=1e-30)).to(images.device, non_blocking=True)


def _partner(images: torch.Tensor, draws: torch.Generator | None) -> torch.Tensor:
    return torch.randperm(len(images), generator=draws).to(images.device, non_blocking=True)

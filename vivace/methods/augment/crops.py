"""Random resized crop and horizontal flip of a whole batch: another crop for each image, one call for all.

    images = flip(random_resized_crop(images, 224))

The same distributions as torchvision's RandomResizedCrop and RandomHorizontalFlip. The pictures are not the same to the
bit: here each is sampled once with bilinear weights, without antialiasing.
"""

from __future__ import annotations

import math

import torch

__all__ = ["flip", "random_resized_crop"]


def flip(images: torch.Tensor, probability: float = 0.5, draws: torch.Generator | None = None) -> torch.Tensor:
    """Some images, mirrored left to right."""
    chosen = torch.rand(len(images), generator=draws).to(images.device) < probability
    return torch.where(chosen.view(-1, *[1] * (images.dim() - 1)), images.flip(-1), images)


def random_resized_crop(
    images: torch.Tensor,
    size: int,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    draws: torch.Generator | None = None,
) -> torch.Tensor:
    """A part of each image, ``size`` by ``size`` pixels. ``scale``: share of its area; ``ratio``: width by height."""
    count, _, height, width = images.shape
    boxes = _boxes(count, height, width, scale, ratio, draws)
    left, top, wide, high = boxes.to(images.device).unbind(1)
    steps = (torch.arange(size, device=images.device) + 0.5) / size
    x = (left.unsqueeze(1) + steps * wide.unsqueeze(1)) / width * 2 - 1
    y = (top.unsqueeze(1) + steps * high.unsqueeze(1)) / height * 2 - 1
    grid = torch.stack([x.unsqueeze(1).expand(-1, size, -1), y.unsqueeze(2).expand(-1, -1, size)], dim=-1)
    sampled = torch.nn.functional.grid_sample(
        images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False
    )
    return sampled.to(images.dtype)


def _boxes(
    count: int,
    height: int,
    width: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    draws: torch.Generator | None,
) -> torch.Tensor:
    """Left, top, width, height in whole pixels. Ten tries, then the largest part in the middle: as torchvision."""
    tries = 10
    area = height * width * _uniform((count, tries), *scale, draws)
    aspect = _uniform((count, tries), math.log(ratio[0]), math.log(ratio[1]), draws).exp()
    wide, high = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    fits = (wide > 0) & (wide <= width) & (high > 0) & (high <= height)
    first = fits.float().argmax(dim=1, keepdim=True)  # the first that fits
    wide, high = wide.gather(1, first).squeeze(1), high.gather(1, first).squeeze(1)
    at = torch.rand(2, count, generator=draws)
    left, top = (at[0] * (width - wide + 1)).floor(), (at[1] * (height - high + 1)).floor()
    found = torch.stack([left, top, wide, high], dim=1)
    return torch.where(fits.any(dim=1, keepdim=True), found, _middle(height, width, ratio))


def _middle(height: int, width: int, ratio: tuple[float, float]) -> torch.Tensor:
    wide, high = float(width), float(height)
    if width / height < ratio[0]:
        high = round(wide / ratio[0])
    elif width / height > ratio[1]:
        wide = round(high * ratio[1])
    return torch.tensor([(width - wide) // 2, (height - high) // 2, wide, high])


def _uniform(shape: tuple[int, ...], low: float, high: float, draws: torch.Generator | None) -> torch.Tensor:
    return low + (high - low) * torch.rand(shape, generator=draws)

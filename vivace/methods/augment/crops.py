"""Random resized crop, shift and horizontal flip of a whole batch: another one for each image, one call for all.

    images = flip(random_resized_crop(images, 224))
    images = flip(random_shift(images, 4))               # CIFAR's usual pair

The same distributions as torchvision's RandomResizedCrop and RandomHorizontalFlip. The pictures are not the same to the
bit: here each is sampled once with bilinear weights, without antialiasing.
"""

from __future__ import annotations

import math

import torch

__all__ = ["crop_boxes", "flip", "random_resized_crop", "random_shift"]


def flip(images: torch.Tensor, probability: float = 0.5, draws: torch.Generator | None = None) -> torch.Tensor:
    """Some images, mirrored left to right."""
    chosen = torch.rand(len(images), generator=draws).to(images.device) < probability
    return torch.where(chosen.view(-1, *[1] * (images.dim() - 1)), images.flip(-1), images)


def random_shift(images: torch.Tensor, pixels: int, draws: torch.Generator | None = None) -> torch.Tensor:
    """Each image moved by up to ``pixels`` in both directions; what comes in at the edge is a mirror image.

    The same as a random crop of an image that was padded by reflection.
    """
    count, _, height, width = images.shape
    if pixels >= min(height, width):
        raise ValueError(f"images of {height} by {width} pixels cannot be moved by {pixels}")
    moves = torch.randint(-pixels, pixels + 1, (2, count, 1), generator=draws).to(images.device)
    rows = _mirrored(torch.arange(height, device=images.device) + moves[0], height)
    columns = _mirrored(torch.arange(width, device=images.device) + moves[1], width)
    every = torch.arange(count, device=images.device).view(-1, 1, 1)
    return images[every, :, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)


def _mirrored(places: torch.Tensor, length: int) -> torch.Tensor:
    return (length - 1) - ((length - 1) - places.abs()).abs()


def random_resized_crop(
    images: torch.Tensor,
    size: int,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    draws: torch.Generator | None = None,
) -> torch.Tensor:
    """A part of each image, ``size`` by ``size`` pixels. ``scale``: share of its area; ``ratio``: width by height."""
    count, _, height, width = images.shape
    boxes = crop_boxes(count, height, width, scale, ratio, draws)
    left, top, wide, high = boxes.to(images.device).unbind(1)
    steps = (torch.arange(size, device=images.device) + 0.5) / size
    x = (left.unsqueeze(1) + steps * wide.unsqueeze(1)) / width * 2 - 1
    y = (top.unsqueeze(1) + steps * high.unsqueeze(1)) / height * 2 - 1
    grid = torch.stack([x.unsqueeze(1).expand(-1, size, -1), y.unsqueeze(2).expand(-1, -1, size)], dim=-1)
    sampled = torch.nn.functional.grid_sample(
        images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False
    )
    return (sampled if images.is_floating_point() else sampled.round()).to(images.dtype)


def crop_boxes(
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

"""RandAugment on a whole batch of bytes: a few random operations for each image, without a loop over images.

Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search space", 2019. The same 14
operations, strengths and odds as torchvision's ``RandAugment``; each operation gives the pixels that Pillow gives::

    images = randaugment(images, operations=2, magnitude=9)      # (n, 3, height, width), uint8, not yet normalised
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

__all__ = ["OPERATIONS", "apply_operation", "randaugment"]

_STRENGTHS = 30  # magnitudes go from 0 to this
_GEOMETRIC = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")
_SIGNED = (*_GEOMETRIC, "brightness", "color", "contrast", "sharpness")


def randaugment(
    images: torch.Tensor, operations: int = 2, magnitude: int = 9, draws: torch.Generator | None = None
) -> torch.Tensor:
    """``operations`` of the 14 for each image, drawn with equal odds, one after the other; half are negative."""
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] != 3:
        raise ValueError(f"randaugment takes (n, 3, height, width) bytes, not {images.dtype} of {tuple(images.shape)}")
    if not 0 <= magnitude <= _STRENGTHS:
        raise ValueError(f"magnitude is 0 to {_STRENGTHS}, not {magnitude}")
    names = list(OPERATIONS)
    for _ in range(operations):
        chosen = torch.randint(len(names), (len(images),), generator=draws)
        signs = torch.randint(2, (len(images),), generator=draws) * 2.0 - 1.0
        result = images.clone()
        for number, name in enumerate(names):
            rows = (chosen == number).nonzero().flatten()  # on the host: no wait for the GPU
            if len(rows) and name != "identity":
                there = rows.to(images.device)
                strength = strength_of(name, magnitude, images.shape[-2], images.shape[-1]) * signs[rows]
                result[there] = apply_operation(images[there], name, strength if name in _SIGNED else strength.abs())
        images = result
    return images


def strength_of(name: str, magnitude: int, height: int, width: int) -> float:
    """What a magnitude means to an operation; without its sign."""
    share = magnitude / _STRENGTHS
    ranges = {
        "shear_x": 0.3 * share, "shear_y": 0.3 * share, "rotate": 30.0 * share,
        "translate_x": float(int(150 / 331 * width * share)), "translate_y": float(int(150 / 331 * height * share)),
        "posterize": float(8 - round(4 * share)), "solarize": 255.0 * (1 - share),
    }  # fmt: skip
    return ranges.get(name, 0.9 * share)


def apply_operation(images: torch.Tensor, name: str, strength: torch.Tensor) -> torch.Tensor:
    """One operation on all images, each with its own strength (a tensor of as many numbers, on the host)."""
    return OPERATIONS[name](images, strength.to(images.device).view(-1, 1, 1, 1))


# -- geometry ---------------------------------------------------------------------------------------------------------


def _moved(name: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def operation(images: torch.Tensor, strength: torch.Tensor) -> torch.Tensor:
        return _sampled(images, _matrix(name, strength.flatten().double(), images.shape[-2], images.shape[-1]))

    return operation


def _matrix(name: str, by: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """(n, 2, 3): from a place in the result to a place in the image, in pixels from the top left corner."""
    one, zero = torch.ones_like(by), torch.zeros_like(by)
    if name == "rotate":
        cos, sin = (by * (math.pi / 180)).cos(), (by * (math.pi / 180)).sin()
        x, y = width / 2, height / 2
        rows = [cos, -sin, x - x * cos + y * sin, sin, cos, y - x * sin - y * cos]
    else:
        rows = {
            "shear_x": [one, by, zero, zero, one, zero],
            "shear_y": [one, zero, zero, by, one, zero],
            "translate_x": [one, zero, by, zero, one, zero],
            "translate_y": [one, zero, zero, zero, one, by],
        }[name]
    return torch.stack(rows, dim=1).view(-1, 2, 3)


def _sampled(images: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """The nearest pixel, black where there is none."""
    count, _, height, width = images.shape
    y, x = torch.meshgrid(
        torch.arange(height, device=images.device) + 0.5, torch.arange(width, device=images.device) + 0.5, indexing="ij"
    )
    places = torch.stack([x, y, torch.ones_like(x)]).flatten(1).double()
    found = (matrices @ places).floor().long().view(count, 2, height, width)
    column, row = found[:, 0], found[:, 1]
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    place = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).view(count, 1, -1)
    pixels = images.flatten(2).gather(2, place.expand(-1, images.shape[1], -1)).view_as(images)
    return pixels * inside.unsqueeze(1)


# -- colours ----------------------------------------------------------------------------------------------------------


def _blend(other: torch.Tensor, images: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """``factor`` 0 is ``other``, 1 is the image, above 1 goes on in the same direction. Cut off as Pillow does."""
    other = other.float()
    return (other + factor.float() * (images.float() - other)).clamp(0, 255).to(torch.uint8)


def _gray(images: torch.Tensor) -> torch.Tensor:
    """Pillow's whole-number formula of the ITU-R 601-2 luma."""
    red, green, blue = images.int().unbind(1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16).unsqueeze(1)


def _brightness(images: torch.Tensor, strength: torch.Tensor) -> torch.Tensor:
    return _blend(torch.zeros_like(images), images, 1 + strength)


def _color(images: torch.Tensor, strength: torch.Tensor) -> torch.Tensor:
    return _blend(_gray(images), images, 1 + strength)


def _contrast(images: torch.Tensor, strength: torch.Tensor) -> torch.Tensor:
    mean = (_gray(images).float().mean(dim=(1, 2, 3), keepdim=True) + 0.5).floor()
    return _blend(mean, images, 1 + strength)


def _sharpness(images: torch.Tensor, strength: torch.Tensor) -> torch.Tensor:
    """Against a smoothed picture, whose edge is left as it is."""
    if min(images.shape[-2:]) < 3:
        return images
    kernel = torch.ones(3, 1, 3, 3, device=images.device) / 13
    kernel[:, :, 1, 1] = 5 / 13
    smooth = images.float()
    smooth[:, :, 1:-1, 1:-1] = (F.conv2d(images.float(), kernel, groups=3) + 0.5).floor()
    return _blend(smooth, images, 1 + strength)


def _posterize(images: torch.Tensor, strength: torch.Tensor) -> torch.Tensor:
    lost = 8 - strength.int()
    return ((images.int() >> lost) << lost).to(torch.uint8)


def _solarize(images: torch.Tensor, strength: torch.Tensor) -> torch.Tensor:
    return torch.where(images >= strength, 255 - images, images)


def _autocontrast(images: torch.Tensor, _strength: torch.Tensor) -> torch.Tensor:
    low, high = images.amin(dim=(2, 3), keepdim=True).double(), images.amax(dim=(2, 3), keepdim=True).double()
    scale = torch.full_like(low, 255.0) / (high - low).clamp(min=1)  # 255 / x would be 255 times a rounded 1 / x
    stretched = (images * scale - low * scale).clamp(0, 255).to(torch.uint8)
    return torch.where(high > low, stretched, images)


def _equalize(images: torch.Tensor, _strength: torch.Tensor) -> torch.Tensor:
    """Per channel: the histogram becomes as even as whole numbers allow."""
    flat = images.flatten(2).flatten(0, 1).long()
    counts = torch.zeros(len(flat), 256, dtype=torch.long, device=images.device)
    counts.scatter_add_(1, flat, torch.ones_like(flat))
    last = counts.gather(1, flat.amax(dim=1, keepdim=True))
    step = (counts.sum(dim=1, keepdim=True) - last) // 255
    before = counts.cumsum(dim=1) - counts
    table = ((before + step // 2) // step.clamp(min=1)).clamp(0, 255)
    equal = table.gather(1, flat).to(torch.uint8).view_as(images)
    return torch.where((step > 0).view(*images.shape[:2], 1, 1), equal, images)


OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "identity": lambda images, _strength: images,
    **{name: _moved(name) for name in _GEOMETRIC},
    "brightness": _brightness,
    "color": _color,
    "contrast": _contrast,
    "sharpness": _sharpness,
    "posterize": _posterize,
    "solarize": _solarize,
    "autocontrast": _autocontrast,
    "equalize": _equalize,
}

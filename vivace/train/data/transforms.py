"""The usual image transforms with PIL and torch, because torchvision is optional.

Each does what torchvision's of the same name does, and draws the same random numbers from torch's generator
in the same order, so that the same seed gives the same crop. Called by ``examples/dlojz.py`` and the
trainer's data sets. PIL is not imported here: the transforms use the methods of the images that they are
given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "CenterCrop",
    "Compose",
    "Normalize",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "ToTensor",
]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

BILINEAR = 2  # PIL.Image.Resampling.BILINEAR
FLIP_LEFT_RIGHT = 0  # PIL.Image.Transpose.FLIP_LEFT_RIGHT
CROP_TRIES = 10


class Compose:
    """One transform after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = list(transforms)

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class RandomResizedCrop:
    """A random part of the image (area 8 % to 100 %, aspect 3/4 to 4/3), resized to ``size`` x ``size``."""

    def __init__(
        self,
        size: int,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
    ) -> None:
        self.size = size
        self.scale = scale
        self.ratio = ratio

    def __call__(self, image: Image) -> Image:
        left, top, width, height = self.box(*image.size)
        crop = image.crop((left, top, left + width, top + height))
        return crop.resize((self.size, self.size), BILINEAR)

    def box(self, width: int, height: int) -> tuple[int, int, int, int]:
        """(left, top, width, height) of the crop: ten random tries, then a crop at the centre."""
        log_ratio = torch.log(torch.tensor(self.ratio))
        for _ in range(CROP_TRIES):
            area = width * height * torch.empty(1).uniform_(*self.scale).item()
            aspect = torch.exp(torch.empty(1).uniform_(log_ratio[0].item(), log_ratio[1].item())).item()
            crop_width = round(math.sqrt(area * aspect))
            crop_height = round(math.sqrt(area / aspect))
            if 0 < crop_width <= width and 0 < crop_height <= height:
                top = int(torch.randint(0, height - crop_height + 1, (1,)).item())
                left = int(torch.randint(0, width - crop_width + 1, (1,)).item())
                return left, top, crop_width, crop_height
        return self._central_box(width, height)

    def _central_box(self, width: int, height: int) -> tuple[int, int, int, int]:
        crop_width, crop_height = width, height
        if width / height < min(self.ratio):
            crop_height = round(width / min(self.ratio))
        elif width / height > max(self.ratio):
            crop_width = round(height * max(self.ratio))
        return (width - crop_width) // 2, (height - crop_height) // 2, crop_width, crop_height


class RandomHorizontalFlip:
    """The mirror image, half of the time."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, image: Image) -> Image:
        return image.transpose(FLIP_LEFT_RIGHT) if torch.rand(1).item() < self.p else image  # type: ignore[arg-type]


class Resize:
    """To (height, width), or with one number: the shorter side to it, the aspect kept."""

    def __init__(self, size: int | tuple[int, int]) -> None:
        self.size = size

    def __call__(self, image: Image) -> Image:
        if isinstance(self.size, tuple):
            height, width = self.size
        else:
            width, height = self._with_shorter_side(*image.size)
        return image.resize((width, height), BILINEAR)

    def _with_shorter_side(self, width: int, height: int) -> tuple[int, int]:
        assert isinstance(self.size, int)
        if width <= height:
            return self.size, int(self.size * height / width)
        return int(self.size * width / height), self.size


class CenterCrop:
    """The middle ``size`` x ``size`` of the image; black around an image that is smaller."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, image: Image) -> Image:
        image = self._padded(image)
        left = round((image.width - self.size) / 2)
        top = round((image.height - self.size) / 2)
        return image.crop((left, top, left + self.size, top + self.size))

    def _padded(self, image: Image) -> Image:
        width, height = max(image.width, self.size), max(image.height, self.size)
        if (width, height) == image.size:
            return image
        left, top = (width - image.width) // 2, (height - image.height) // 2
        return image.crop((-left, -top, width - left, height - top))  # PIL fills the outside with black


class ToTensor:
    """A PIL image or (height, width, channel) array of bytes to a (channel, height, width) tensor in 0..1."""

    def __call__(self, image: Image | np.ndarray) -> Tensor:
        pixels = torch.from_numpy(np.array(image))  # a copy: PIL's memory is read-only
        if pixels.ndim == 2:
            pixels = pixels.unsqueeze(2)
        return pixels.permute(2, 0, 1).contiguous().to(torch.float32).div(255)


class Normalize:
    """(x - mean) / std, per channel."""

    def __init__(self, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD) -> None:
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def __call__(self, image: Tensor) -> Tensor:
        return (image - self.mean).div_(self.std)

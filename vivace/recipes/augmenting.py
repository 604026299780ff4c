"""What happens to images on the device: crop, flip, RandAugment, normalisation, mixing. Labels follow the pixels.

All draws follow from the seed, the step and the rank, so a training that goes on sees what it would have seen.
"""

from __future__ import annotations

import zlib

import torch
import torch.nn.functional as F
from torch import Tensor

from vivace.methods.augment import cutmix, flip, mixup, randaugment, random_resized_crop, random_shift
from vivace.recipes.feeding import Batch
from vivace.recipes.recipe import Recipe

__all__ = ["Augment", "Normalise"]


class Normalise:
    """Bytes to (x / 255 - mean) / std in fp32. Other inputs (tokens, the user's own numbers) pass."""

    def __init__(self, recipe: Recipe, device: torch.device) -> None:
        shape = (1, 3, 1, 1)
        self._mean = torch.tensor(recipe.data.mean, device=device).view(shape) * 255
        self._scale = 1 / (torch.tensor(recipe.data.std, device=device).view(shape) * 255)
        self._images = recipe.data.kind == "images"
        self._layout = torch.channels_last if recipe.speed.channels_last else torch.contiguous_format

    def __call__(self, inputs: Tensor) -> Tensor:
        if not self._images or inputs.ndim != 4:
            return inputs
        if inputs.dtype == torch.uint8:
            inputs = (inputs.float() - self._mean) * self._scale
        return inputs.contiguous(memory_format=self._layout)


class Augment:
    """Inputs and targets of a training step, from a batch of bytes."""

    def __init__(self, recipe: Recipe, classes: int | None, rank: int, device: torch.device) -> None:
        self._asked, self._classes, self._rank, self._seed = recipe.augment, classes, rank, recipe.seed
        self._images = recipe.data.kind == "images"
        self._resizes = recipe.data.resident or recipe.data.train == "generated"
        self._pairs = recipe.objective.name == "contrastive"
        self.normalise = Normalise(recipe, device)

    def __call__(self, batch: Batch, step: int, part: int, epoch: int, size: int) -> tuple[Tensor, Tensor]:
        if not self._images or batch.inputs.ndim != 4:
            return batch.inputs, batch.targets
        draws = torch.Generator().manual_seed(zlib.crc32(f"{self._seed}:{step}:{part}:{self._rank}".encode()))
        images = batch.inputs
        if self._pairs:
            return self.views(images, size, draws), batch.targets
        if images.dtype == torch.uint8:
            images = self._pixels(images, batch.indices, epoch, size, draws)
        return self._mixed(self.normalise(images), batch.targets, draws)

    def views(self, images: Tensor, size: int, draws: torch.Generator) -> Tensor:
        """Two of each image, drawn apart: all first ones, then all second ones."""
        nothing = images.new_empty(0)  # no index and no epoch: flips that alternate are refused
        return self.normalise(torch.cat([self._pixels(images, nothing, 0, size, draws) for _ in range(2)]))

    def _pixels(self, images: Tensor, indices: Tensor, epoch: int, size: int, draws: torch.Generator) -> Tensor:
        asked = self._asked
        if asked.crop == "resized" and self._resizes:
            images = random_resized_crop(images, size, asked.scale, draws=draws)
        elif images.shape[-1] != size or images.shape[-2] != size:
            resized = F.interpolate(images.float(), (size, size), mode="bilinear", antialias=True, align_corners=False)
            images = resized.round().clamp(0, 255).to(torch.uint8)
        if asked.flip == "random":
            images = flip(images, draws=draws)
        elif asked.flip == "alternating":
            mirrored = (_coin(indices) + epoch) % 2 == 1
            images = torch.where(mirrored.view(-1, 1, 1, 1), images.flip(-1), images)
        if asked.crop == "shift":
            images = random_shift(images, asked.shift, draws)
        if asked.randaugment:
            images = randaugment(images, asked.randaugment, asked.magnitude, draws)
        return images

    def _mixed(self, images: Tensor, targets: Tensor, draws: torch.Generator) -> tuple[Tensor, Tensor]:
        asked = self._asked
        if not asked.mixup and not asked.cutmix:
            return images, targets
        assert self._classes is not None
        blends = bool(asked.mixup) and (not asked.cutmix or bool(torch.rand((), generator=draws) < 0.5))
        mix, alpha = (mixup, asked.mixup) if blends else (cutmix, asked.cutmix)
        return mix(images, targets, self._classes, alpha, draws)


def _coin(indices: Tensor) -> Tensor:
    """0 or 1 for each image, for ever: Knuth's multiplicative hash."""
    return (indices * 2654435761 >> 16) & 1

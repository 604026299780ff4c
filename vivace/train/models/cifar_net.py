"""A small convolutional network that learns CIFAR-10 in few steps. Called by the recipe ``cifar10-speed``.

The design is that of airbench94 (Keller Jordan, "94 % on CIFAR-10 in 3.29 seconds on a single GPU", 2024, and his Muon
version): a frozen first layer that whitens 2x2 patches, three blocks of two convolutions, and one linear layer.
``whiten`` must be called once with training images before the first step.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

__all__ = ["CifarNet"]

_WIDTHS = (64, 256, 256)
_PATCH = 2
_WHITE = 2 * 3 * _PATCH**2
_EPSILON = 5e-4
_MOMENTUM = 0.4  # torch's sense: how fast the batch norms follow; training takes few steps


class CifarNet(nn.Module):
    """Images of 32x32 pixels in, logits out."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.white = nn.Conv2d(3, _WHITE, _PATCH, bias=True)
        self.white.weight.requires_grad = False
        widths = (_WHITE, *_WIDTHS)
        self.blocks = nn.Sequential(
            nn.GELU(),
            *(_Block(before, after) for before, after in itertools.pairwise(widths)),
            nn.MaxPool2d(3),
        )
        self.head = nn.Linear(_WIDTHS[-1], classes, bias=False)
        self._initialise()

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.white(x)).flatten(1)
        logits: Tensor = self.head(x) / x.shape[-1]
        return logits

    @torch.no_grad()
    def whiten(self, images: Tensor) -> None:
        """Set the first layer from normalised images: the main directions of their patches, and their negatives."""
        patches = (
            images.float().unfold(2, _PATCH, 1).unfold(3, _PATCH, 1).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(0, 2)
        )
        patches = patches.double()
        values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
        filters = vectors.T.flip(0) / (values.flip(0).unsqueeze(1) + _EPSILON).sqrt()
        self.white.weight.copy_(torch.cat([filters, -filters]).view_as(self.white.weight))

    def _initialise(self) -> None:
        """Convolutions begin by passing channels on (Dirac); norms have no scale of their own."""
        nn.init.zeros_(self.white.bias)  # type: ignore[arg-type]
        for module in self.blocks.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.dirac_(module.weight[: module.in_channels])
        with torch.no_grad():
            self.head.weight.div_(self.head.weight.std())


class _Block(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, padding=1, bias=False)
        self.pool = nn.MaxPool2d(2)
        self.norm1 = _norm(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = _norm(after)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.gelu(self.norm1(self.pool(self.conv1(x))))
        out: Tensor = nn.functional.gelu(self.norm2(self.conv2(x)))
        return out


def _norm(width: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(width, eps=1e-12, momentum=_MOMENTUM)
    norm.weight.requires_grad = False
    return norm

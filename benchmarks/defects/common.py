"""What the planted defects share: their switches and a plain convolutional network. No loop, no defect is here."""

from __future__ import annotations

import argparse
import os

import torch
from torch import nn


def arguments(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--fixed", action="store_true", help="without the defect")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--small", action="store_true", help="sizes for a CPU")
    args = parser.parse_args()
    torch.manual_seed(0)
    return args


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ConvNet(nn.Module):
    """Blocks of convolution, batch norm, ReLU; every third halves the picture. Global mean, one linear layer."""

    def __init__(self, width: int, blocks: int, classes: int = 100, bias: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for number in range(blocks):
            layers += [
                nn.Conv2d(channels, width, 3, stride=2 if number % 3 == 0 else 1, padding=1, bias=bias),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            channels = width
        self.features = nn.Sequential(*layers)
        self.classify = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classify(self.features(images).mean(dim=(2, 3)))

"""Runs a script of the examples as it is, with a small network in fp64, where rounding cannot hide a wrong number.

python small_in_fp64.py SCRIPT OPTIONS
"""

import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[2]))

from vivace.train.models import resnet


class Small(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3)
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(8, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.features(images.double()))
        return logits


@contextmanager
def small_in_fp64() -> Iterator[None]:
    kind = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with patch.object(resnet, "by_name", lambda name, num_classes: Small(num_classes)):
            yield
    finally:
        torch.set_default_dtype(kind)


def run(words: list[str]) -> None:
    path = [str(Path(words[0]).parent), *sys.path]
    with small_in_fp64(), patch.object(sys, "argv", words), patch.object(sys, "path", path):
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    run(sys.argv[1:])

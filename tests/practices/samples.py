"""Samples of many kinds. In a module of their own, where workers that are not forked can import them."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch
from torch.utils.data import Dataset

__all__ = ["FLOATS", "Samples"]

FLOATS = 2**17  # half a MiB a sample: batches of two and more get memory that is kept
Pair = namedtuple("Pair", "image label")


class Owned(dict):
    """A batch that sees to its pinning itself: not at all."""

    def pin_memory(self) -> Owned:
        return self


class Samples(Dataset):
    def __init__(self, kind: str, count: int = 46) -> None:
        self.kind, self.count = kind, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        image = torch.full((FLOATS,), float(index))
        if self.kind == "nested":
            return {"image": image, "deep": [Pair(-image, index), ("name", image.double().numpy())]}
        if self.kind == "growing":  # two batches of each length; and back to a short one in the middle
            return torch.full((FLOATS // 2 * (1 + (index // 8 if index < 32 else 0)),), float(index)), index
        if self.kind == "owned":
            return Owned(image=image)
        if self.kind == "small":
            return torch.full((7,), float(index)), index
        if self.kind == "failing" and index == 10:
            raise ValueError("broken file")
        return image, index

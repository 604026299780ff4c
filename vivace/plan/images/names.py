"""What the reference image models are called, and which one a name means. Without torch, until a model is made."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

__all__ = ["image_model", "known_image_models"]

DEPTHS = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
    "resnet101": (3, 4, 23, 3),
    "resnet152": (3, 8, 36, 3),
}
VITS = {"tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16)}
SCALES = {
    "b0": (1.0, 1.0),
    "b1": (1.0, 1.1),
    "b2": (1.1, 1.2),
    "b3": (1.2, 1.4),
    "b4": (1.4, 1.8),
    "b5": (1.6, 2.2),
    "b6": (1.8, 2.6),
    "b7": (2.0, 3.1),
}


def known_image_models() -> list[str]:
    return [
        *DEPTHS,
        "resnext50_32x4d",
        "resnext101_32x4d",
        "wide_resnet50_2",
        "se-resnext101-32x4d",
        "efficientnet-b0",
        "efficientnet-b4",
        "vit_base_patch16_224",
    ]


def image_model(name: str, image_size: int = 224) -> Callable[[], Any] | None:
    """A function that makes the model which a name means, or None. Spellings of papers, timm and tables
    are read.
    """
    word = re.sub(r"[\s_.-]+", "", name.lower()).replace("v15", "").replace("(pytorch/examples)", "").replace("v1b", "")
    word = word.removeprefix("gluon").removeprefix("tv").removeprefix("ssl").removeprefix("swsl").removeprefix("ig")
    se = word.startswith("se") and "resne" in word
    word = word.removeprefix("legacy").removeprefix("se")
    return _residual(word, se) or _efficient(word) or _transformer(word, image_size)


def _zoo() -> Any:
    """It imports torch, so only when a model is made."""
    return importlib.import_module("vivace.plan.images.zoo")


def _residual(word: str, se: bool) -> Callable[[], Any] | None:
    if plain := re.fullmatch(r"resnet(18|34|50|101|152)", word):
        depth = plain[1]
        return lambda: _zoo().ResNet(DEPTHS[f"resnet{depth}"], int(depth) >= 50, se=se)
    if next_ := re.fullmatch(r"resnext(50|101)(32|64)x(\d+)d", word):
        depth, groups, width = next_[1], int(next_[2]), int(next_[3])
        return lambda: _zoo().ResNet(DEPTHS[f"resnet{depth}"], True, groups, width, se)
    if wide := re.fullmatch(r"wideresnet(50|101)2", word):
        depth = wide[1]
        return lambda: _zoo().ResNet(DEPTHS[f"resnet{depth}"], True, 1, 128)
    return None


def _efficient(word: str) -> Callable[[], Any] | None:
    found = re.fullmatch(r"(?:tf)?efficientnet(widese)?(b[0-7])(?:ap|ns)?", word)
    if found is None:
        return None
    scales, wide_se = SCALES[found[2]], bool(found[1])
    return lambda: _zoo().EfficientNet(*scales, wide_se)


def _transformer(word: str, image_size: int) -> Callable[[], Any] | None:
    found = re.fullmatch(r"(?:vit|deit)(tiny|small|base|large)patch(8|14|16|32)(\d*)", word)
    if found is None:
        return None
    (width, depth, heads), patch = VITS[found[1]], int(found[2])
    return lambda: _zoo().VisionTransformer(width, depth, heads, patch, image_size)

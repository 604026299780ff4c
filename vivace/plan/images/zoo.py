"""Reference image models in plain torch, so that tables and plans need neither torchvision nor timm.

ResNet (v1.5: the stride sits in the 3x3), ResNeXt, Wide and SE variants, EfficientNet, Vision Transformer.
With timm or torchvision installed, every model of theirs can be planned too. Imports torch; called by
``image_job.py`` on the meta device.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import torch
from torch import nn

__all__ = ["image_model", "known_image_models"]

DEPTHS = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
    "resnet101": (3, 4, 23, 3),
    "resnet152": (3, 8, 36, 3),
}
VITS = {"tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16)}


def _conv(width_in: int, width_out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(width_in, width_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(width_out))


class SqueezeExcite(nn.Module):
    def __init__(self, width: int, squeezed: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(width, squeezed, 1), nn.Conv2d(squeezed, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.up(torch.relu(self.down(x.mean((2, 3), keepdim=True))))
        return x * torch.sigmoid(scale)


class Block(nn.Module):
    """Basic (two 3x3) or bottleneck (1x1, 3x3, 1x1) residual block."""

    def __init__(
        self, width_in: int, planes: int, stride: int, style: dict[str, int], bottleneck: bool, se: bool
    ) -> None:
        super().__init__()
        out = planes * (4 if bottleneck else 1)
        inner = planes * style["width"] // 64 * style["groups"] if bottleneck else planes
        if bottleneck:
            self.body = nn.Sequential(
                _conv(width_in, inner, 1),
                nn.ReLU(inplace=True),
                _conv(inner, inner, 3, stride, style["groups"]),
                nn.ReLU(inplace=True),
                _conv(inner, out, 1),
            )
        else:
            self.body = nn.Sequential(_conv(width_in, planes, 3, stride), nn.ReLU(inplace=True), _conv(planes, out, 3))
        self.excite: nn.Module = SqueezeExcite(out, out // 16) if se else nn.Identity()
        changed = stride != 1 or width_in != out
        self.shortcut: nn.Module = _conv(width_in, out, 1, stride) if changed else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu_(self.excite(self.body(x)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(
        self, depths: tuple[int, ...], bottleneck: bool, groups: int = 1, width: int = 64, se: bool = False
    ) -> None:
        super().__init__()
        style = {"groups": groups, "width": width}
        self.stem = nn.Sequential(_conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        blocks: list[nn.Module] = []
        last = 64
        for stage, depth in enumerate(depths):
            planes = 64 * 2**stage
            for index in range(depth):
                stride = 2 if stage and not index else 1
                blocks.append(Block(last, planes, stride, style, bottleneck, se))
                last = planes * (4 if bottleneck else 1)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(last, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


# EfficientNet stages: expansion, width, depth, stride, kernel (Tan and Le 2019, table 1).
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
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


class Inverted(nn.Module):
    """Expand, depth-wise, squeeze, project."""

    def __init__(self, width_in: int, width_out: int, expansion: int, stride: int, kernel: int, wide_se: bool) -> None:
        super().__init__()
        inner = width_in * expansion
        expand = [_conv(width_in, inner, 1), nn.SiLU(inplace=True)] if expansion > 1 else []
        squeezed = (inner if wide_se else width_in) // 4
        self.body = nn.Sequential(
            *expand,
            _conv(inner, inner, kernel, stride, inner),
            nn.SiLU(inplace=True),
            SqueezeExcite(inner, max(1, squeezed)),
            _conv(inner, width_out, 1),
        )
        self.residual = stride == 1 and width_in == width_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.body(x)
        return out + x if self.residual else out


class EfficientNet(nn.Module):
    def __init__(self, width_scale: float, depth_scale: float, wide_se: bool) -> None:
        super().__init__()

        def scaled(width: int) -> int:
            new = max(8, int(width * width_scale + 4) // 8 * 8)
            return new + 8 if new < 0.9 * width * width_scale else new

        last = scaled(32)
        layers: list[nn.Module] = [_conv(3, last, 3, 2), nn.SiLU(inplace=True)]
        for expansion, width, depth, stride, kernel in STAGES:
            for index in range(math.ceil(depth * depth_scale)):
                step = stride if index == 0 else 1
                layers.append(Inverted(last, scaled(width), expansion, step, kernel, wide_se))
                last = scaled(width)
        layers += [_conv(last, scaled(1280), 1), nn.SiLU(inplace=True)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(scaled(1280), 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3)))


class Encoder(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        # Written out: the 2022 tables were measured before fused attention.
        weights = torch.softmax(q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5, dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class VisionTransformer(nn.Module):
    def __init__(self, width: int, depth: int, heads: int, patch: int, image: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.positions = nn.Parameter(torch.zeros(1, (image // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Encoder(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(tokens))[:, 0])


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


def image_model(name: str, image_size: int = 224) -> Callable[[], nn.Module] | None:
    """A function that makes the model which a name means, or None. Spellings of papers, timm and tables
    are read.
    """
    word = re.sub(r"[\s_.-]+", "", name.lower()).replace("v15", "").replace("(pytorch/examples)", "").replace("v1b", "")
    word = word.removeprefix("gluon").removeprefix("tv").removeprefix("ssl").removeprefix("swsl").removeprefix("ig")
    se = word.startswith("se") and "resne" in word
    word = word.removeprefix("legacy").removeprefix("se")
    return _residual(word, se) or _efficient(word) or _transformer(word, image_size)


def _residual(word: str, se: bool) -> Callable[[], nn.Module] | None:
    if plain := re.fullmatch(r"resnet(18|34|50|101|152)", word):
        depth = plain[1]
        return lambda: ResNet(DEPTHS[f"resnet{depth}"], int(depth) >= 50, se=se)
    if next_ := re.fullmatch(r"resnext(50|101)(32|64)x(\d+)d", word):
        depth, groups, width = next_[1], int(next_[2]), int(next_[3])
        return lambda: ResNet(DEPTHS[f"resnet{depth}"], True, groups, width, se)
    if wide := re.fullmatch(r"wideresnet(50|101)2", word):
        depth = wide[1]
        return lambda: ResNet(DEPTHS[f"resnet{depth}"], True, 1, 128)
    return None


def _efficient(word: str) -> Callable[[], nn.Module] | None:
    found = re.fullmatch(r"(?:tf)?efficientnet(widese)?(b[0-7])(?:ap|ns)?", word)
    if found is None:
        return None
    scales, wide_se = SCALES[found[2]], bool(found[1])
    return lambda: EfficientNet(*scales, wide_se)


def _transformer(word: str, image_size: int) -> Callable[[], nn.Module] | None:
    found = re.fullmatch(r"(?:vit|deit)(tiny|small|base|large)patch(8|14|16|32)(\d*)", word)
    if found is None:
        return None
    (width, depth, heads), patch = VITS[found[1]], int(found[2])
    return lambda: VisionTransformer(width, depth, heads, patch, image_size)

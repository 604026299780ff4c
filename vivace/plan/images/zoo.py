"""Reference image models in plain torch, so that tables and plans need neither torchvision nor timm.

ResNet (v1.5: the stride sits in the 3x3), ResNeXt, Wide and SE variants, EfficientNet, Vision Transformer.
With timm or torchvision installed, every model of theirs can be planned too. ``names.py`` knows what each is called.
"""

from __future__ import annotations

import math

import torch
from torch import nn

__all__ = ["EfficientNet", "ResNet", "VisionTransformer"]


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

"""ResNet-18/34/50/101/152 for images, in plain torch, so that torchvision stays optional.

Names, order and initialisation of the parameters are torchvision's: its weights load, and the same seed
gives the same network. The stride of a bottleneck sits on its 3x3 convolution ("v1.5"). Called by the
trainer and ``examples/dlojz.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from vivace.errors import UserError

__all__ = ["NAMES", "ResNet", "by_name", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, in_planes: int, planes: int, stride: int, downsample: nn.Module | None) -> None:
        super().__init__()
        self.conv1 = _conv(in_planes, planes, 3, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = _conv(planes, planes, 3)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu(out + shortcut)


class Bottleneck(nn.Module):
    """1x1 down, 3x3 (with the stride), 1x1 up to four times the width, and a shortcut."""

    expansion = 4

    def __init__(self, in_planes: int, planes: int, stride: int, downsample: nn.Module | None) -> None:
        super().__init__()
        out_planes = planes * self.expansion
        self.conv1 = _conv(in_planes, planes, 1)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = _conv(planes, planes, 3, stride)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = _conv(planes, out_planes, 1)
        self.bn3 = nn.BatchNorm2d(out_planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu(out + shortcut)


class ResNet(nn.Module):
    """A residual network: a stem, four stages of ``depths`` blocks, average pooling, one linear layer."""

    def __init__(
        self, block: type[BasicBlock] | type[Bottleneck], depths: Sequence[int], num_classes: int = 1000
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        wide = block.expansion
        self.layer1 = _stage(block, 64, 64, depths[0], stride=1)
        self.layer2 = _stage(block, 64 * wide, 128, depths[1], stride=2)
        self.layer3 = _stage(block, 128 * wide, 256, depths[2], stride=2)
        self.layer4 = _stage(block, 256 * wide, 512, depths[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * wide, num_classes)
        self._initialise()

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits

    def _initialise(self) -> None:
        # Batch norms are left as torch makes them: weight 1, bias 0.
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def _conv(in_planes: int, planes: int, size: int, stride: int = 1) -> nn.Conv2d:
    # No bias: the batch norm that follows would cancel it.
    return nn.Conv2d(in_planes, planes, size, stride=stride, padding=size // 2, bias=False)


def _stage(
    block: type[BasicBlock] | type[Bottleneck], in_planes: int, planes: int, depth: int, stride: int
) -> nn.Sequential:
    out_planes = planes * block.expansion
    downsample = None
    if stride != 1 or in_planes != out_planes:
        downsample = nn.Sequential(_conv(in_planes, out_planes, 1, stride), nn.BatchNorm2d(out_planes))
    blocks = [block(in_planes, planes, stride, downsample)]
    blocks += [block(out_planes, planes, 1, None) for _ in range(depth - 1)]
    return nn.Sequential(*blocks)


def resnet18(num_classes: int = 1000) -> ResNet:
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes)


def resnet34(num_classes: int = 1000) -> ResNet:
    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes)


def resnet50(num_classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes)


def resnet101(num_classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 23, 3), num_classes)


def resnet152(num_classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck, (3, 8, 36, 3), num_classes)


_BUILDERS = {
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
    "resnet101": resnet101,
    "resnet152": resnet152,
}
NAMES = tuple(_BUILDERS)


def by_name(name: str, num_classes: int = 1000) -> ResNet:
    """``by_name("resnet50")``: the network of that name, freshly initialised."""
    if name not in _BUILDERS:
        raise UserError(f"no model called {name!r}", hint=f"choose one of {', '.join(NAMES)}")
    return _BUILDERS[name](num_classes)

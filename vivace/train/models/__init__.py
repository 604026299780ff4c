"""Reference models, each in plain torch."""

from __future__ import annotations

from vivace.train.models.resnet import ResNet, by_name

__all__ = ["ResNet", "by_name"]

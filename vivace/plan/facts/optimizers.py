"""What each optimizer keeps and moves per parameter. Data only; called by the memory and time models."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OPTIMIZERS", "Optimizer"]


@dataclass(frozen=True)
class Optimizer:
    state_bytes: float
    """Of state per parameter in fp32: Adam keeps two moments, momentum SGD one, LAMB as Adam."""
    traffic: float = 1.0
    """Bytes that its step moves over those that Adam's does."""
    temporary_bytes: float = 0.0
    """Per parameter, while a step runs over lists of tensors (PyTorch's default, not fused)."""


OPTIMIZERS = {
    "adam": Optimizer(8.0, temporary_bytes=4.0),
    "adamw": Optimizer(8.0, temporary_bytes=4.0),
    "lamb": Optimizer(8.0, 1.6),
    "sgd": Optimizer(4.0, 0.5),
    "sgd-plain": Optimizer(0.0, 0.35),
    "adafactor": Optimizer(0.1),
    "lion": Optimizer(4.0, 0.75),
}

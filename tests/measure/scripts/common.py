"""Shared by the scripts of this folder, which are what people write, made small: a model, some data."""

import torch
from torch import nn
from torch.utils.data import TensorDataset


def make_model(width: int = 16) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 4))


def make_dataset(samples: int = 4096) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(samples, 8, generator=generator)
    return TensorDataset(inputs, inputs.argmax(1) % 4)

"""Batches of varying length on a GPU whose memory they nearly fill: the ground of R13 and R16."""

from __future__ import annotations

import torch
from torch import nn

WIDTH = 1024
ROOM = 1.10  # over the peak of the longest batch


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = [m for _ in range(8) for m in (nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def one_pass(model: nn.Module, length: int) -> torch.Tensor:
    x = torch.randn(16, length, WIDTH, device="cuda")
    return (model(x) - x).square().mean()


def take_the_rest_of_the_memory(model: nn.Module, longest: int) -> None:
    """Leave this process little more than the longest batch needs, as on a GPU that is well filled."""
    one_pass(model, longest).backward()
    needed = ROOM * torch.cuda.max_memory_allocated()
    model.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.set_per_process_memory_fraction(needed / torch.cuda.get_device_properties(0).total_memory)

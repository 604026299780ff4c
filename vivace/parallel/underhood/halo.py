"""Spatial parallelism: one picture is too large for one rank, so each rank has some of its rows.

A convolution of size k needs (k - 1)/2 rows of its neighbours. They are exchanged before the layer (the halo); in the
backward pass the gradients of these rows go back to where they came from, and are added there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from vivace.parallel.underhood.collectives import all_reduce
from vivace.parallel.underhood.wire import Wire

__all__ = ["SplitConv2d", "average_gradients", "with_halo"]


class _Halo(torch.autograd.Function):
    """Rows of the neighbours above and below; zeros at the picture's own edges, as the convolution pads them."""

    @staticmethod
    def forward(context: Any, rows: torch.Tensor, wire: Wire, width: int) -> torch.Tensor:
        context.wire, context.width = wire, width
        above, below = _swap(wire, top=rows[:, :, :width], bottom=rows[:, :, -width:])
        return torch.cat([above, rows, below], dim=2)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        width = context.width
        own = gradient[:, :, width:-width].clone()
        from_above, from_below = _swap(context.wire, top=gradient[:, :, :width], bottom=gradient[:, :, -width:])
        own[:, :, :width] += from_above
        own[:, :, -width:] += from_below
        return own, None, None


def _swap(wire: Wire, top: torch.Tensor, bottom: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Send ``top`` up and ``bottom`` down; what comes from above and from below, zeros where nobody is."""
    top, bottom = top.contiguous(), bottom.contiguous()
    above, below = torch.zeros_like(top), torch.zeros_like(bottom)
    started = []
    if wire.rank > 0:
        started += [wire.start_send(top, wire.rank - 1), wire.start_receive(above, wire.rank - 1)]
    if wire.rank < wire.size - 1:
        started += [wire.start_send(bottom, wire.rank + 1), wire.start_receive(below, wire.rank + 1)]
    for each in started:
        each.wait()
    return above, below


def with_halo(rows: torch.Tensor, wire: Wire, width: int) -> torch.Tensor:
    assert rows.shape[2] >= width, "a rank has fewer rows than its neighbours need of it"
    return _Halo.apply(rows, wire, width)


class SplitConv2d(nn.Module):
    """A convolution with stride 1 and padding (k - 1)/2 on this rank's rows. The weights are the same on every rank."""

    def __init__(self, whole: nn.Conv2d, wire: Wire) -> None:
        super().__init__()
        self.width, remainder = divmod(whole.kernel_size[0] - 1, 2)
        assert remainder == 0
        assert whole.stride == (1, 1)
        assert whole.padding == (self.width, whole.padding[1])
        self.conv, self.wire = whole, wire

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        rows = with_halo(rows, self.wire, self.width) if self.width else rows
        return functional.conv2d(rows, self.conv.weight, self.conv.bias, padding=(0, int(self.conv.padding[1])))


def average_gradients(model: nn.Module, wire: Wire) -> None:
    """Each rank's gradients of the mean over its rows → those of the mean over the picture (equal shares)."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            all_reduce(wire, parameter.grad).div_(wire.size)

"""Into and out of the split region, with gradients.

The convention: inside the region a rank's gradients are ``world`` times the part that its rows contribute. The *mean*
over ranks is then the whole gradient, and it leaves alone what every rank computed in full (a penalty on the weights
that the script adds by itself). So a gradient that enters the region is multiplied by ``world``, and one that leaves it
through the inputs is divided. Each backward is made of these functions again: second derivatives work.
"""

from __future__ import annotations

from typing import Any

import torch

from vivace.scale.group import Group
from vivace.scale.shares import Shares

__all__ = ["add_up", "cut", "enter", "mean_over_ranks", "put_together", "sum_inside"]


def cut(whole: torch.Tensor, dim: int, shares: Shares, group: Group) -> torch.Tensor:
    """This rank's rows. Their gradient is put together again: the script gets the whole one."""
    return _Cut.apply(whole, dim, shares, group)


def put_together(part: torch.Tensor, dim: int, shares: Shares, group: Group) -> torch.Tensor:
    """The whole batch's rows, on every rank."""
    return _PutTogether.apply(part, dim, shares, group)


def enter(value: torch.Tensor, group: Group) -> torch.Tensor:
    """A tensor without rows, used inside the region: the script gets its whole gradient."""
    if not value.requires_grad:
        return value
    if value.is_leaf:  # its gradient is averaged with those of the parameters
        group.average_too(value)
        return value
    return _Enter.apply(value, group)


def add_up(value: torch.Tensor, weight: float, group: Group) -> torch.Tensor:
    """The sum over ranks of ``weight × value``, for use outside: a loss that the model computed itself."""
    return _AddUp.apply(value, weight, group)


def sum_inside(value: torch.Tensor, group: Group) -> torch.Tensor:
    """The sum over ranks, for use inside the region: statistics of the whole batch."""
    return _SumInside.apply(value, group)


def mean_over_ranks(gradient: torch.Tensor, group: Group) -> torch.Tensor:
    """A gradient of parameters that the script asked for by itself (``autograd.grad``)."""
    return _MeanOverRanks.apply(gradient, group)


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, dim: int, shares: Shares, group: Group) -> torch.Tensor:
        ctx.how = (dim, shares, group)
        return whole.narrow(dim, shares.start, shares.mine).clone(memory_format=torch.preserve_format)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        dim, shares, group = ctx.how
        return _PutTogether.apply(gradient, dim, shares, group) / group.world, None, None, None


class _PutTogether(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, dim: int, shares: Shares, group: Group) -> torch.Tensor:
        ctx.how = (dim, shares, group)
        return group.gather(part, shares, dim)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        dim, shares, group = ctx.how
        return _Cut.apply(gradient, dim, shares, group) * group.world, None, None, None


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _MeanOverRanks.apply(gradient, ctx.group), None


class _AddUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, weight: float, group: Group) -> torch.Tensor:
        ctx.factor = weight * group.world
        own = value.detach() if weight == 1.0 else value.detach() * weight  # counts stay whole numbers
        return group.sum(own.clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * ctx.factor, None, None


class _SumInside(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return group.sum(value.detach().clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _SumInside.apply(gradient, ctx.group), None


class _MeanOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, group: Group) -> torch.Tensor:
        mean = gradient.detach().clone(memory_format=torch.contiguous_format)
        return group.sum(mean).div_(group.world)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None

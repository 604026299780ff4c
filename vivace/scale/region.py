"""What is different inside a split forward: random draws are those of the whole batch, and so is batch norm.

``Region`` is entered around one root's forward. The replaced torch functions look at it and do nothing outside. A draw
whose size along the batch is a multiple of the rank's rows is made for the whole batch and cut: every rank's generator
moves on as the single process's would, and dropout masks and noise are the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from vivace.measure.inside.patches import in_place_of
from vivace.scale import local_norms
from vivace.scale.crossing import sum_inside
from vivace.scale.group import Group
from vivace.scale.shares import Shares

__all__ = ["Region", "install"]


class Region:
    """The split that is being computed, or None outside. One per process: forwards of roots do not nest."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.shares: Shares | None = None
        self.dim = 0
        self.proving = False  # the whole batch is being run, to be compared with parts

    @property
    def written_out(self) -> bool:
        """Whether dropout that torch hides in a kernel is done step by step: draws in a kernel cannot be cut."""
        return self.shares is not None or self.proving

    def rows_of(self, shape: Any) -> tuple[int, int] | None:
        """(dimension, rows per sample) of a tensor that holds the batch; None for one that does not.

        A guess, by sizes; the proof of the split looks at what comes of it.
        """
        shares = self.shares
        if shares is None or shares.mine == shares.size:
            return None
        usual = [dim for dim in dict.fromkeys((self.dim, 0, *range(len(shape)))) if dim < len(shape)]
        if (same := next((dim for dim in usual if shape[dim] == shares.mine), None)) is not None:
            return same, 1
        several = (dim for dim in usual[:2] if shape[dim] and shape[dim] % shares.mine == 0)
        return next(((dim, shape[dim] // shares.mine) for dim in several), None)

    def cut_draw(self, shape: Any, draw: Callable[[Any], torch.Tensor]) -> torch.Tensor:
        """``draw`` for the whole batch, cut to this rank's rows."""
        found = self.rows_of(shape)
        if found is None:
            return draw(tuple(shape))
        assert self.shares is not None
        dim, per_sample = found
        whole = list(shape)
        whole[dim] = per_sample * self.shares.size
        return draw(tuple(whole)).narrow(dim, per_sample * self.shares.start, per_sample * self.shares.mine)


def install(region: Region) -> None:
    """Replace torch's functions that draw, and batch norm. Each is itself again outside the region."""
    for name in ("rand_like", "randn_like"):
        setattr(torch, name, _like(region, getattr(torch, name)))
    for name in ("rand", "randn"):
        setattr(torch, name, _sized(region, getattr(torch, name)))
    for name in ("normal_", "uniform_", "bernoulli_", "exponential_"):
        setattr(torch.Tensor, name, _filled(region, getattr(torch.Tensor, name)))
    torch.bernoulli = _bernoulli(region, torch.bernoulli)
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d"):
        setattr(F, name, _dropout(region, getattr(F, name)))
    F.scaled_dot_product_attention = _attention(region, F.scaled_dot_product_attention)
    torch.Tensor.register_hook = _hooked(region, torch.Tensor.register_hook)  # type: ignore[method-assign]
    if local_norms.wanted():
        local_norms.LocalNorms(region.group, lambda: region.shares is not None).install()
    else:
        F.batch_norm = _batch_norm(region, F.batch_norm)
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        setattr(torch._VF, name, _recurrent(region, getattr(torch._VF, name)))


def _laid_out_like(tensor: torch.Tensor, shape: Any) -> torch.Tensor:
    """Uninitialized, with the dimensions in the same order in memory: numbers are drawn in that order."""
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], dim))
    empty = tensor.detach().new_empty([shape[dim] for dim in order])
    return empty.permute([order.index(dim) for dim in range(tensor.dim())])


def _like(region: Region, original: Any) -> Any:
    def like(tensor: torch.Tensor, **options: Any) -> torch.Tensor:
        if region.rows_of(tensor.shape) is None:
            return original(tensor, **options)
        drawn = region.cut_draw(tensor.shape, lambda shape: original(_laid_out_like(tensor, shape), **options))
        return drawn.clone(memory_format=torch.preserve_format)

    return like


def _sized(region: Region, original: Any) -> Any:
    def sized(*size: Any, **options: Any) -> torch.Tensor:
        shape = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list, torch.Size)) else size
        if "size" in options or not all(isinstance(n, int) for n in shape) or region.rows_of(shape) is None:
            return original(*size, **options)
        return region.cut_draw(shape, lambda whole: original(whole, **options)).contiguous()

    return sized


def _filled(region: Region, original: Any) -> Any:
    def fill(self: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if region.rows_of(self.shape) is None or any(isinstance(value, torch.Tensor) for value in args):
            return original(self, *args, **options)
        with torch.no_grad():
            return self.copy_(
                region.cut_draw(self.shape, lambda shape: original(_laid_out_like(self, shape), *args, **options))
            )

    return fill


def _bernoulli(region: Region, original: Any) -> Any:
    def bernoulli(probabilities: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if args or region.rows_of(probabilities.shape) is None:
            return original(probabilities, *args, **options)
        draws = region.cut_draw(probabilities.shape, lambda shape: torch.rand(shape, device=probabilities.device))
        return (draws < probabilities).to(probabilities.dtype)

    return bernoulli


def _dropout(region: Region, original: Any) -> Any:
    """torch's own dropout for the whole batch, of ones: its mask, drawn as one process draws it."""

    def dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        if not training or p == 0 or region.rows_of(input.shape) is None:
            return original(input, p, training, inplace)
        with torch.no_grad():
            mask = region.cut_draw(
                input.shape, lambda shape: original(_laid_out_like(input, shape).fill_(1), p, True, False)
            )
        return input.mul_(mask) if inplace else input * mask

    return dropout


def _attention(region: Region, original: Any) -> Any:
    """Dropout inside the fused kernel cannot be cut: with dropout, attention is written out."""

    def attention(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: Any = None, **more: Any,
    ) -> torch.Tensor:  # fmt: skip
        if dropout_p == 0 or more.get("enable_gqa") or not region.written_out:
            return original(
                query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, **more
            )
        factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
        scores = query @ key.transpose(-2, -1) * factor
        if is_causal:
            length = (query.size(-2), key.size(-2))
            attn_mask = torch.ones(length, dtype=torch.bool, device=query.device).tril()
        if attn_mask is not None:
            masked = attn_mask.dtype is torch.bool
            scores = scores.masked_fill(~attn_mask, float("-inf")) if masked else scores + attn_mask
        return F.dropout(scores.softmax(-1), dropout_p, True) @ value

    return attention


def _recurrent(region: Region, original: Any) -> Any:
    """A stack of layers with dropout between them, one layer at a time."""

    def layers(*args: Any) -> Any:
        stacked = len(args) == 9 and not isinstance(args[3], (list, tuple))  # packed sequences have another order
        if not stacked or not region.written_out:
            return original(*args)
        input, states, weights, biases, count, dropout, training, both_ways, batch_first = args
        if not training or dropout == 0 or count == 1:
            return original(*args)
        ways, outer_dim = 2 if both_ways else 1, region.dim
        is_lstm = isinstance(states, (list, tuple))
        before = list(states) if is_lstm else [states]
        each = len(weights) // count
        after: list[list[torch.Tensor]] = [[] for _ in before]
        rows = input.transpose(0, 1) if batch_first else input
        for layer in range(count):
            own = [state[layer * ways : (layer + 1) * ways].contiguous() for state in before]
            hidden = tuple(own) if is_lstm else own[0]
            part = weights[layer * each : (layer + 1) * each]
            rows, *new = original(rows, hidden, part, biases, 1, 0.0, training, both_ways, False)
            for kept, state in zip(after, new):
                kept.append(state)
            if layer < count - 1:
                region.dim = 1  # inside a stack the sequence comes first
                rows = F.dropout(rows, dropout, True)
                region.dim = outer_dim
        return (rows.transpose(0, 1) if batch_first else rows, *(torch.cat(kept) for kept in after))

    return layers


def _hooked(region: Region, original: Any) -> Any:
    """A hook on a tensor inside the region sees the gradient of its rows as one process has it (see ``crossing``)."""

    def register_hook(tensor: torch.Tensor, hook: Any) -> Any:
        if region.shares is None or tensor.is_leaf:
            return original(tensor, hook)

        def scaled(gradient: torch.Tensor) -> Any:
            changed = hook(gradient / region.group.world)
            return None if changed is None else changed * region.group.world

        return original(tensor, scaled)

    return in_place_of(original, register_hook)


def _batch_norm(region: Region, original: Any) -> Any:
    """In training mode with the statistics of all ranks' rows; running ones move as one process moves them."""

    def batch_norm(
        input: torch.Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
        training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
    ) -> torch.Tensor:  # fmt: skip
        if not training or region.shares is None or region.shares.mine == region.shares.size:
            return original(input, running_mean, running_var, weight, bias, training, momentum, eps)
        return _over_ranks(input, running_mean, running_var, weight, bias, momentum, eps, region.group)

    return batch_norm


def _over_ranks(
    input: torch.Tensor, running_mean: Any, running_var: Any, weight: Any, bias: Any, momentum: float, eps: float,
    group: Group,
) -> torch.Tensor:  # fmt: skip
    values = input if input.dtype is torch.float64 else input.float()
    dims = [dim for dim in range(input.dim()) if dim != 1]
    shape = [1, -1] + [1] * (input.dim() - 2)
    count = values.new_tensor([input.numel() / input.size(1)])
    count = group.sum(count)
    mean = sum_inside(values.sum(dims), group) / count
    centred = values - mean.view(shape)
    variance = sum_inside((centred * centred).sum(dims), group) / count
    with torch.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            unbiased = variance * (count / (count - 1))
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    result = centred * torch.rsqrt(variance + eps).view(shape)
    if weight is not None:
        result = result * weight.view(shape)
    if bias is not None:
        result = result + bias.view(shape)
    return result.to(input.dtype)

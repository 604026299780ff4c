"""Losses over a batch that lies on several ranks: each rank computes its rows, one small message makes the whole.

Two places need this. Outside a model, the script's loss takes rows (rules for ``Rows``). Inside a model that computes
its own loss, a mean over targets of which some are ignored is a mean over those of all ranks: a rank's own count says
nothing about the others'.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
import torch.nn.functional as F

from vivace.measure.inside.patches import in_place_of
from vivace.scale.crossing import add_up
from vivace.scale.layout import Layout
from vivace.scale.region import Region
from vivace.scale.row_rules import pointwise_parts
from vivace.scale.rows import RULES, UNKNOWN, Rows, part_or_none

__all__ = ["install"]

_BY_CLASS = ("cross_entropy", "nll_loss")
_BY_ENTRY = (
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "kl_div",
)  # fmt: skip


def install(region: Region) -> None:
    RULES.update(dict.fromkeys(_BY_CLASS, _by_class))
    RULES.update(dict.fromkeys(_BY_ENTRY, _by_entry))
    for name in _BY_CLASS:
        setattr(F, name, _inside(region, getattr(F, name)))


@functools.cache
def _signature(func: Any) -> inspect.Signature:
    return inspect.signature(func)


def _words(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """All arguments by name, with ``reduction`` for what older scripts say by ``size_average`` and ``reduce``."""
    bound = _signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    words = dict(bound.arguments)
    average, reduce = words.pop("size_average", None), words.pop("reduce", None)
    if average is not None or reduce is not None:
        summed = "mean" if average is None or average else "sum"
        words["reduction"] = summed if reduce is None or reduce else "none"
    return words


# -- entry by entry --------------------------------------------------------------------------------------------------


def _by_entry(func: Any, args: Any, kwargs: Any) -> Any:
    words = _words(func, args, kwargs)
    with_rows = [name for name, value in words.items() if isinstance(value, torch.Tensor) and name != "pos_weight"]
    found = pointwise_parts([words[name] for name in with_rows])
    if found is None or words["input"].shape != words["target"].shape:
        return UNKNOWN
    parts, layout, rows = found
    reduction = words.pop("reduction")
    local = {**words, **dict(zip(with_rows, parts))}
    if reduction == "none":
        return Rows.of(func(**local, reduction="none"), layout, rows._group)
    if reduction == "mean":
        return add_up(func(**local, reduction="mean"), layout.part_size / layout.whole_size, rows._group)
    total = add_up(func(**local, reduction="sum"), 1.0, rows._group)
    return total / words["input"].size(0) if reduction == "batchmean" else total


# -- by class --------------------------------------------------------------------------------------------------------


def _by_class(func: Any, args: Any, kwargs: Any) -> Any:
    words = _words(func, args, kwargs)
    if isinstance(words["weight"], Rows):
        return UNKNOWN
    found = _rows_and_targets(words["input"], words["target"])
    if found is None:
        return UNKNOWN
    rows, words["input"], words["target"], layout = found
    reduction = words.pop("reduction")
    if reduction == "none":
        return Rows.of(func(**words, reduction="none"), layout, rows._group)
    if reduction == "sum":
        return add_up(func(**words, reduction="sum"), 1.0, rows._group)
    total, count = _sum_and_count(func, words)
    both = add_up(torch.stack([total, count]), 1.0, rows._group)
    return (both[0] / both[1]).to(_kind(words["input"]))


def _rows_and_targets(input: Any, target: Any) -> tuple[Rows, torch.Tensor, torch.Tensor, Layout] | None:
    """The input's rows and the same samples' targets, and where the batch lies in the targets."""
    if not isinstance(input, Rows) or (part := part_or_none(input)) is None:
        return None
    by_index = target.dim() == input.dim() - 1
    dim = input._layout.dim
    if (by_index and dim == 1) or (not by_index and target.shape != input.shape):
        return None
    layout = input._layout.at(dim - 1 if by_index and dim > 1 else dim)
    if target.dim() <= layout.dim or target.size(layout.dim) != layout.whole_size:
        return None
    if not isinstance(target, Rows):
        return input, part, layout.cut(target, input._group), layout
    own = part_or_none(target)
    return None if own is None or target._layout != layout else (input, part, own, layout)


def _sum_and_count(func: Any, words: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum over these rows, and what a mean divides by: the targets that count, by the weight of their class."""
    input, target, weight = words["input"], words["target"], words["weight"]
    if input.dtype in (torch.float16, torch.bfloat16):  # a sum of many needs the room
        words = {**words, "input": input.float()}
    total = func(**words, reduction="sum")
    if target.is_floating_point():  # probabilities
        return total, total.new_tensor(input.numel() / input.size(1 if input.dim() > 1 else 0))
    counted = target != words["ignore_index"]
    count = counted.sum() if weight is None else weight[target[counted]].sum()
    return total, count.to(total.dtype)


def _kind(input: torch.Tensor) -> torch.dtype:
    """Of the loss: torch computes it in fp32 under autocast, else as its input is."""
    return torch.float32 if _autocast(input.device.type) and input.dtype != torch.float64 else input.dtype


def _autocast(device: str) -> bool:
    return torch.is_autocast_enabled(device)


def _inside(region: Region, original: Any) -> Any:
    """What a split model computes itself: ``plan`` takes the mean of the ranks' values by their rows."""

    def loss(*args: Any, **kwargs: Any) -> torch.Tensor:
        shares = region.shares
        if shares is None or shares.mine == shares.size:
            return original(*args, **kwargs)
        words = _words(original, args, kwargs)
        if words["reduction"] != "mean" or words["target"].is_floating_point():
            return original(*args, **kwargs)
        words.pop("reduction")
        total, count = _sum_and_count(original, words)
        whole = region.group.sum(count.detach().clone())
        return (total / whole * (shares.size / shares.mine)).to(_kind(words["input"]))

    return in_place_of(original, loss)

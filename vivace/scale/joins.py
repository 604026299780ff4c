"""How the parts of an output make the whole, and whether they do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from vivace.scale.crossing import add_up
from vivace.scale.errors import ScaleError
from vivace.scale.group import Group
from vivace.scale.layout import Layout
from vivace.scale.rows import Rows
from vivace.scale.shares import Shares

__all__ = ["Join", "Joined", "find_join", "fits", "joined", "where_it_fails"]

# Of the largest value: a part that sees other samples than its own is off by far more, sums in another order by less.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


class Joined(Enum):
    """How the parts of an output make the whole."""

    ROWS = "rows"
    MEAN = "mean"
    SUM = "sum"
    SAME = "same"


@dataclass(frozen=True)
class Join:
    """Rows lie along ``dim``; several for a sample lie together, or (``outer``) the sequence comes first, flattened."""

    how: Joined
    dim: int = 0
    outer: bool = False


def joined(part: Any, join: Join, shares: Shares, group: Group) -> Any:
    if join.how is Joined.ROWS:
        return Rows.of(part, _layout(part, join, shares), group)
    if join.how is Joined.MEAN:
        return add_up(part, shares.mine / shares.size, group)
    return add_up(part, 1.0, group) if join.how is Joined.SUM else part


def _layout(part: torch.Tensor, join: Join, shares: Shares) -> Layout:
    """Whose rows are whose along the dimension that holds the batch."""
    times, rest = divmod(part.size(join.dim), shares.mine)
    if rest:
        raise ScaleError(f"an output of {part.size(join.dim)} rows for {shares.mine} samples cannot be put together")
    return Layout(shares, join.dim, outer=times if join.outer else 1, inner=1 if join.outer else times)


def find_join(whole: Any, part: Any, shares: Shares, group: Group) -> Join | None:
    """How the ranks' parts make the whole, tried out; None where they do not. All ranks answer alike."""
    candidates = _candidates(whole, part, shares)
    if group.all_agree(_same_table(whole, part)):
        return Join(Joined.SAME)
    if not group.all_say_the_same(repr(candidates)):  # a part may be shorter along another dimension, too
        return None
    return next((join for join in candidates if fits(join, whole, part, shares, group)), None)


def _same_table(whole: Any, part: Any) -> bool:
    """Matrices that no row went into (weights, positions); a scalar may be the same by chance."""
    tensors = isinstance(whole, torch.Tensor) and isinstance(part, torch.Tensor)
    return tensors and whole.dim() > 1 and whole.shape == part.shape and torch.equal(whole, part)


def _candidates(whole: Any, part: Any, shares: Shares) -> list[Join]:
    if not isinstance(whole, torch.Tensor) or not isinstance(part, torch.Tensor):
        return [Join(Joined.SAME)]
    if whole.shape == part.shape:  # a mean also where all parts are alike by chance: it is right then, too
        return (
            [Join(Joined.MEAN), Join(Joined.SUM)]
            if whole.is_floating_point()
            else [Join(Joined.SUM), Join(Joined.SAME)]
        )
    if whole.dim() != part.dim():
        return []
    unlike = [dim for dim in range(whole.dim()) if whole.size(dim) != part.size(dim)]
    if len(unlike) != 1 or part.size(unlike[0]) % shares.mine:
        return []
    dim, several = unlike[0], part.size(unlike[0]) > shares.mine
    return [Join(Joined.ROWS, dim), *([Join(Joined.ROWS, dim, outer=True)] if several else [])]


def fits(join: Join, whole: Any, part: Any, shares: Shares, group: Group) -> bool:
    if not isinstance(whole, torch.Tensor) or not isinstance(part, torch.Tensor):
        same = type(whole) is type(part) and (whole is part or _equal(whole, part))
        return group.all_agree(same)
    if join.how is Joined.ROWS:
        return group.all_agree(_rows_fit(join, whole, part, shares))
    if not group.all_agree(whole.shape == part.shape):
        return False
    with torch.no_grad():
        made = joined(part.detach().clone(), join, shares, group)
    return group.all_agree(_close(whole, made))


def _rows_fit(join: Join, whole: torch.Tensor, part: torch.Tensor, shares: Shares) -> bool:
    if whole.dim() != part.dim() or part.size(join.dim) * shares.size != whole.size(join.dim) * shares.mine:
        return False
    return _close(_layout(part, join, shares).narrow(whole), part)


def _equal(first: Any, second: Any) -> bool:
    try:
        return bool(first == second)
    except Exception:  # an object of the user's
        return False


def _close(whole: torch.Tensor, made: torch.Tensor) -> bool:
    if whole.shape != made.shape or whole.dtype != made.dtype:
        return False
    if not whole.is_floating_point():
        return bool(torch.equal(whole, made))
    tolerance = _TOLERANCE.get(whole.dtype, 5e-2)
    first, second = whole.detach().double(), made.detach().double()
    finite = torch.isfinite(first)
    if not torch.equal(finite, torch.isfinite(second)):
        return False
    first, second = first[finite], second[finite]
    if not first.numel():
        return True
    return bool((first - second).abs().max() <= tolerance * max(1e-6, float(first.abs().max())))


def where_it_fails(whole: list[Any], joins: list[Join | None]) -> str:
    index = joins.index(None)
    value = whole[index]
    if not isinstance(value, torch.Tensor):
        return f"output {index + 1}, a {type(value).__name__}, is another one for a part of the batch"
    kind = "the scalar" if value.dim() == 0 else f"of shape {tuple(value.shape)}"
    return f"output {index + 1}, {kind}, cannot be put together from parts of the batch"

"""How one call of a model is split, and the proof of it.

The first call with inputs of a kind is run on the whole batch, then on this rank's rows, on all ranks at once. If what
comes out can be put together to what the whole batch gives, the call is split from then on; if not, every rank runs it
whole, and says why. Random generators, buffers and attributes of the modules are put back after each run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from vivace.scale.crossing import add_up, cut, put_together
from vivace.scale.group import Group
from vivace.scale.region import Region
from vivace.scale.shares import Shares

__all__ = ["Replicated", "Split", "find_plan", "run_split", "signature", "still_holds"]

Call = Callable[..., Any]
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


@dataclass(frozen=True)
class Split:
    """``inputs``: for each leaf of the inputs the dimension of the batch, or None. ``outputs``: how each is joined."""

    inputs: tuple[int | None, ...]
    outputs: tuple[Join, ...]
    dim: int


@dataclass(frozen=True)
class Replicated:
    reason: str


def signature(root: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """Calls that are alike are split alike: the structure, the kinds of tensors, and which of their sizes are equal."""
    leaves, spec = tree_flatten((args, kwargs))
    sizes: dict[int, int] = {}
    kinds: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            kinds.append((leaf.dtype, tuple(sizes.setdefault(size, len(sizes)) for size in leaf.shape)))
        else:
            kinds.append(type(leaf))
    return root.training, torch.is_grad_enabled(), str(spec), tuple(kinds)


def find_plan(root: torch.nn.Module, call: Call, args: Any, kwargs: Any, region: Region) -> Split | Replicated:
    leaves, _ = tree_flatten((args, kwargs))
    group = region.group
    found = list(_assignments(leaves, group.world))
    if not found:
        return Replicated("no input has a dimension that could be the batch")
    whole = _run_whole(root, call, args, kwargs, region)
    reasons = []
    for dim, inputs in found:
        shares = _shares(leaves, inputs, group)
        with _put_back(root):
            part = _try_part(call, args, kwargs, inputs, dim, shares, region)
        if not group.all_agree(not isinstance(part, str) and len(part) == len(whole)):
            reasons.append(part if isinstance(part, str) else "a part of the batch gives other outputs")
            continue
        joins = [_join(of_whole, of_part, shares, group) for of_whole, of_part in zip(whole, part)]
        if all(join is not None for join in joins):
            return Split(inputs, tuple(join for join in joins if join is not None), dim)
        reasons.append(_where_it_fails(whole, joins))
    return Replicated(reasons[0])  # of the likeliest dimension


def still_holds(root: torch.nn.Module, call: Call, args: Any, kwargs: Any, plan: Split, region: Region) -> bool:
    """The proof again, for a later call."""
    leaves, _ = tree_flatten((args, kwargs))
    shares = _shares(leaves, plan.inputs, region.group)
    whole = _run_whole(root, call, args, kwargs, region)
    with _put_back(root):
        part = _try_part(call, args, kwargs, plan.inputs, plan.dim, shares, region)
    if not region.group.all_agree(not isinstance(part, str) and len(part) == len(whole) == len(plan.outputs)):
        return False
    return all(
        _fits(join, of_whole, of_part, shares, region.group)
        for join, of_whole, of_part in zip(plan.outputs, whole, part)
    )


def _run_whole(root: torch.nn.Module, call: Call, args: Any, kwargs: Any, region: Region) -> list[Any]:
    region.proving = True
    try:
        with _put_back(root):
            return tree_flatten(call(*args, **kwargs))[0]
    finally:
        region.proving = False


def run_split(call: Call, args: Any, kwargs: Any, plan: Split, region: Region) -> Any:
    """The whole batch's outputs, computed by all ranks together. A batch that is too small is run whole."""
    leaves, spec = tree_flatten((args, kwargs))
    shares = _shares(leaves, plan.inputs, region.group)
    if not shares.can_be_split:
        return call(*args, **kwargs)
    outputs = _run_part(call, leaves, spec, plan.inputs, plan.dim, shares, region)
    parts, out_spec = tree_flatten(outputs)
    return tree_unflatten(
        [_joined(part, join, shares, region.group) for part, join in zip(parts, plan.outputs)], out_spec
    )


def _assignments(leaves: list[Any], world: int) -> Iterator[tuple[int, tuple[int | None, ...]]]:
    """Which dimension of each input may be the batch: the first of the first tensor, else its second, …

    The other tensors have it where they have the same size, at the same place if they can.
    """
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim() > 0]
    if not tensors:
        return
    for dim in range(min(tensors[0].dim(), 2)):
        size = tensors[0].size(dim)
        if size >= world:
            yield dim, tuple(_batch_dim(leaf, dim, size) for leaf in leaves)


def _batch_dim(leaf: Any, dim: int, size: int) -> int | None:
    if not isinstance(leaf, torch.Tensor):
        return None
    if leaf.dim() > dim and leaf.size(dim) == size:
        return dim
    return next((other for other in range(leaf.dim()) if leaf.size(other) == size), None)


def _shares(leaves: list[Any], inputs: tuple[int | None, ...], group: Group) -> Shares:
    size = next(leaf.size(dim) for leaf, dim in zip(leaves, inputs) if dim is not None)
    return Shares(size, group.rank, group.world)


def _try_part(
    call: Call, args: Any, kwargs: Any, inputs: tuple[int | None, ...], dim: int, shares: Shares, region: Region
) -> list[Any] | str:
    leaves, spec = tree_flatten((args, kwargs))
    try:
        return tree_flatten(_run_part(call, leaves, spec, inputs, dim, shares, region))[0]
    except Exception as error:  # the user's own code, with a size that it was not written for
        return f"a part of the batch is refused: {type(error).__name__}: {error}"


def _run_part(
    call: Call,
    leaves: list[Any],
    spec: Any,
    inputs: tuple[int | None, ...],
    dim: int,
    shares: Shares,
    region: Region,
) -> Any:
    mine = [leaf if at is None else cut(leaf, at, shares, region.group) for leaf, at in zip(leaves, inputs)]
    args, kwargs = tree_unflatten(mine, spec)
    region.shares, region.dim = shares, dim
    try:
        return call(*args, **kwargs)
    finally:
        region.shares = None


def _joined(part: Any, join: Join, shares: Shares, group: Group) -> Any:
    if join.how is Joined.ROWS:
        rows = _rows(part, join, shares)
        return _by_rows(part, join, shares.mine, lambda tensor, dim: put_together(tensor, dim, rows, group))
    if join.how is Joined.MEAN:
        return add_up(part, shares.mine / shares.size, group)
    return add_up(part, 1.0, group) if join.how is Joined.SUM else part


def _rows(part: torch.Tensor, join: Join, shares: Shares) -> Shares:
    """Whose rows are whose along the dimension that holds the batch and nothing before it."""
    times, rest = divmod(part.size(join.dim), shares.mine)
    if rest:
        raise RuntimeError(f"an output of {part.size(join.dim)} rows for {shares.mine} samples cannot be put together")
    return Shares(shares.size, shares.rank, shares.world, 1 if join.outer else times)


def _by_rows(
    tensor: torch.Tensor, join: Join, samples: int, change: Callable[[torch.Tensor, int], torch.Tensor]
) -> torch.Tensor:
    """``change`` sees the tensor with what comes before the batch in a dimension of its own."""
    if not join.outer:
        return change(tensor, join.dim)
    rows = tensor.unflatten(join.dim, (-1, samples))
    return change(rows, join.dim + 1).flatten(join.dim, join.dim + 1)


def _join(whole: Any, part: Any, shares: Shares, group: Group) -> Join | None:
    """How the ranks' parts make the whole, tried out; None where they do not. All ranks answer alike."""
    candidates = _candidates(whole, part, shares)
    return next((join for join in candidates if _fits(join, whole, part, shares, group)), None)


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


def _fits(join: Join, whole: Any, part: Any, shares: Shares, group: Group) -> bool:
    if not isinstance(whole, torch.Tensor) or not isinstance(part, torch.Tensor):
        same = type(whole) is type(part) and (whole is part or _equal(whole, part))
        return group.all_agree(same)
    if join.how is Joined.ROWS:
        return group.all_agree(_rows_fit(join, whole, part, shares))
    if not group.all_agree(whole.shape == part.shape):
        return False
    with torch.no_grad():
        made = _joined(part.detach().clone(), join, shares, group)
    return group.all_agree(_close(whole, made))


def _rows_fit(join: Join, whole: torch.Tensor, part: torch.Tensor, shares: Shares) -> bool:
    if whole.dim() != part.dim() or part.size(join.dim) * shares.size != whole.size(join.dim) * shares.mine:
        return False
    rows = _rows(part, join, shares)
    mine = _by_rows(whole, join, shares.size, lambda tensor, dim: tensor.narrow(dim, rows.start, rows.mine))
    return _close(mine, part)


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


def _where_it_fails(whole: list[Any], joins: list[Join | None]) -> str:
    index = joins.index(None)
    value = whole[index]
    if not isinstance(value, torch.Tensor):
        return f"output {index + 1}, a {type(value).__name__}, is another one for a part of the batch"
    kind = "the scalar" if value.dim() == 0 else f"of shape {tuple(value.shape)}"
    return f"output {index + 1}, {kind}, cannot be put together from parts of the batch"


@contextlib.contextmanager
def _put_back(root: torch.nn.Module) -> Iterator[None]:
    """Generators, buffers and attributes of the modules are afterwards as they were before."""
    states = [(module, dict(module.__dict__)) for module in root.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in root.buffers()]
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            for module, state in states:
                module.__dict__.clear()
                module.__dict__.update(state)
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)

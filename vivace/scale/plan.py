"""How one call of a model is split, and the proof of it.

The first call with inputs of a kind is run on the whole batch, then on this rank's rows, on all ranks at once. If what
comes out can be put together to what the whole batch gives, the call is split from then on; if not, every rank runs it
whole, and says why. What comes out are the returned tensors and those that the model keeps in attributes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from vivace.scale.crossing import cut, enter
from vivace.scale.decisions import Decisions, Undecided
from vivace.scale.errors import ScaleError
from vivace.scale.group import Group
from vivace.scale.joins import Join, find_join, fits, joined, where_it_fails
from vivace.scale.kept import hooked, inside_rows, kept_since, put_back, set_kept, structure, tensors_kept
from vivace.scale.layout import Layout
from vivace.scale.opaque import Opaque, deep_leaves, made_whole, tensors_in
from vivace.scale.region import Region
from vivace.scale.rows import PROOF, Rows, all_whole, asked_by, part_or_none, whole_of
from vivace.scale.shares import Shares

__all__ = ["Planner", "Replicated", "Split", "signature"]

Call = Callable[..., Any]


@dataclass(frozen=True)
class Split:
    """``inputs``: for each leaf of the inputs the dimension of the batch, or None. ``outputs``: how each is joined."""

    inputs: tuple[int | None, ...]
    outputs: tuple[Join, ...]
    dim: int
    kept: Mapping[str, tuple[Join, ...]]
    """The same for the attributes that the forward leaves tensors in, where it does."""
    decides: bool
    """Whether the forward reads values out of torch."""

    def covers(self, trial: _Trial) -> bool:
        """Whether nothing came out that there was no join for."""
        joins = {name: len(self.kept.get(name, ())) for name in trial.kept}
        return len(trial.outputs) == len(self.outputs) and joins == {n: len(v) for n, v in trial.kept.items()}


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
    computed = any(each.requires_grad and not each.is_leaf for each in root.parameters())
    return root.training, torch.is_grad_enabled(), computed, structure(root), str(spec), tuple(kinds)


@dataclass(frozen=True)
class _Trial:
    """What came out of one trial run: the outputs' leaves, those of the kept attributes, the values it decided by."""

    outputs: list[Any]
    kept: dict[str, list[Any]]
    values: list[Any]

    def fits(self, other: _Trial) -> bool:
        """Whether the same things came out, by number."""
        kept = {name: len(leaves) for name, leaves in self.kept.items()}
        return len(self.outputs) == len(other.outputs) and kept == {n: len(v) for n, v in other.kept.items()}


class Planner:
    def __init__(self, region: Region, decisions: Decisions) -> None:
        self.region, self.group, self.decisions = region, region.group, decisions

    # -- the proof ---------------------------------------------------------------------------------------------------

    def find(self, root: torch.nn.Module, call: Call, args: Any, kwargs: Any) -> Split | Replicated:
        leaves, _ = tree_flatten((args, kwargs))
        found = list(_assignments(leaves, self.group.world))
        if not found:
            return Replicated("no input has a dimension that could be the batch")
        for leaf in deep_leaves((args, kwargs)):
            if isinstance(leaf, Opaque):
                return Replicated(f"an input is a {leaf.kind.__name__}, which holds tensors that cannot be cut")
        if (reason := hooked(root)) is not None:
            return Replicated(reason)
        if any(each.requires_grad and not each.is_leaf for each in root.parameters()):
            return Replicated("its parameters are computed by the script")
        whole = self._try_whole(root, call, args, kwargs)
        reasons = []
        for dim, inputs in found:
            plan = self._proved(root, call, args, kwargs, inputs, dim, whole)
            if isinstance(plan, Split):
                return plan
            reasons.append(plan)
        return reasons[0]  # of the likeliest dimension

    def _proved(
        self, root: Any, call: Call, args: Any, kwargs: Any, inputs: tuple[int | None, ...], dim: int, whole: _Trial
    ) -> Split | Replicated:
        shares = _shares(tree_flatten((args, kwargs))[0], inputs, self.group)
        part = self._try_part(root, call, args, kwargs, inputs, dim, shares)
        if not self.group.all_agree(not isinstance(part, str) and part.fits(whole)):
            return Replicated(part if isinstance(part, str) else "a part of the batch gives other outputs")
        assert isinstance(part, _Trial)
        if not self.group.all_agree(repr(part.values) == repr(whole.values)):
            return Replicated("its forward reads a value of the batch, and parts of the batch give another one")
        joins = self._joins(whole.outputs, part.outputs, shares)
        if None in joins:
            return Replicated(where_it_fails(whole.outputs, joins))
        kept = {name: self._joins(leaves, part.kept[name], shares) for name, leaves in sorted(whole.kept.items())}
        unfit = next((name for name, found in kept.items() if None in found), None)
        if unfit is not None:
            return Replicated(f"what it keeps in {unfit.lstrip('.')} cannot be put together from parts of the batch")
        found = {name: tuple(filter(None, each)) for name, each in kept.items()}
        return Split(inputs, tuple(filter(None, joins)), dim, found, decides=bool(whole.values))

    def _joins(self, whole: list[Any], part: list[Any], shares: Shares) -> list[Join | None]:
        return [find_join(all_, mine, shares, self.group) for all_, mine in zip(whole, part)]

    def still_holds(self, root: torch.nn.Module, call: Call, args: Any, kwargs: Any, plan: Split) -> bool:
        """The proof again, for a later call."""
        shares = _shares(tree_flatten((args, kwargs))[0], plan.inputs, self.group)
        if not shares.can_be_split:
            return True
        whole = self._try_whole(root, call, args, kwargs)
        part = self._try_part(root, call, args, kwargs, plan.inputs, plan.dim, shares)
        if not self.group.all_agree(not isinstance(part, str) and part.fits(whole) and plan.covers(whole)):
            return False
        assert isinstance(part, _Trial)
        if not self.group.all_agree(repr(whole.values) == repr(part.values)):
            return plan.decides  # such a call is run whole
        outputs = zip(plan.outputs, whole.outputs, part.outputs)
        kept = (zip(plan.kept[name], leaves, part.kept[name]) for name, leaves in sorted(whole.kept.items()))
        return all(fits(*each, shares, self.group) for each in itertools.chain(outputs, *kept))

    def _try_whole(self, root: torch.nn.Module, call: Call, args: Any, kwargs: Any) -> _Trial:
        with asked_by(PROOF):
            args, kwargs = all_whole((args, kwargs))
        self.region.proving = True
        try:
            with put_back(root):
                return self._trial(root, lambda: call(*args, **kwargs), whole=True)
        finally:
            self.region.proving = False

    def _try_part(
        self, root: Any, call: Call, args: Any, kwargs: Any, inputs: Any, dim: int, shares: Shares
    ) -> _Trial | str:
        try:
            with put_back(root):
                return self._trial(root, lambda: self._on_part(call, args, kwargs, inputs, dim, shares))
        except Exception as error:  # the user's own code, with a size that it was not written for
            return f"a part of the batch is refused: {type(error).__name__}: {error}"

    def _trial(self, root: Any, run: Any, whole: bool = False) -> _Trial:
        with inside_rows(root, tensors_kept(root), self.group, whole):
            before = tensors_kept(root)
            self.decisions.values, self.decisions.watching = [], True
            try:
                outputs = run()
            finally:
                values, self.decisions.values, self.decisions.watching = self.decisions.values, None, False
            new = kept_since(before, tensors_kept(root))
        kept = {name: tree_flatten(value)[0] for name, value in new.items()}
        return _Trial(deep_leaves(outputs), kept, values)

    # -- the real call -----------------------------------------------------------------------------------------------

    def run(self, root: torch.nn.Module, call: Call, args: Any, kwargs: Any, plan: Split) -> Any:
        """The whole batch's outputs, computed by all ranks together. A batch that is too small is run whole."""
        shares = _shares(tree_flatten((args, kwargs))[0], plan.inputs, self.group)
        if not shares.can_be_split:
            return self.run_whole(root, call, args, kwargs, plan.kept)
        if not plan.decides:
            return self._run_split(root, call, args, kwargs, plan, shares)
        self.decisions.watching = True
        try:
            with put_back(root, always=False):
                return self._run_split(root, call, args, kwargs, plan, shares)
        except Undecided:
            return self.run_whole(root, call, args, kwargs, plan.kept)
        finally:
            self.decisions.watching = False

    def run_whole(self, root: Any, call: Call, args: Any, kwargs: Any, kept: Iterable[str] = ()) -> Any:
        made_whole((args, kwargs))
        args, kwargs = all_whole((args, kwargs))
        with inside_rows(root, kept, self.group, whole=True):
            return call(*args, **kwargs)

    def _run_split(self, root: Any, call: Call, args: Any, kwargs: Any, plan: Split, shares: Shares) -> Any:
        with inside_rows(root, plan.kept, self.group, whole=False):
            before = tensors_kept(root, plan.kept)
            outputs = self._on_part(call, args, kwargs, plan.inputs, plan.dim, shares)
            new = kept_since(before, tensors_kept(root, plan.kept))
        set_kept(root, {name: self._joined(root, new[name], plan.kept[name], shares) for name in sorted(new)})
        return self._joined(root, outputs, plan.outputs, shares)

    def _joined(self, root: Any, made: Any, joins: tuple[Join, ...], shares: Shares) -> Any:
        if (count := len(deep_leaves(made))) != len(joins):
            raise ScaleError(f"{type(root).__name__} gave {count} outputs here and {len(joins)} before")
        how = iter(joins)
        leaves, spec = tree_flatten(made)
        for index, leaf in enumerate(leaves):
            leaves[index] = joined(leaf, next(how), shares, self.group)
            for home, key in [] if isinstance(leaf, torch.Tensor) else tensors_in(leaf):
                home[key] = joined(home[key], next(how), shares, self.group)
        return tree_unflatten(leaves, spec)

    def _on_part(self, call: Call, args: Any, kwargs: Any, inputs: Any, dim: int, shares: Shares) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        mine = [_own_input(leaf, at, shares, self.group) for leaf, at in zip(leaves, inputs)]
        args, kwargs = tree_unflatten(mine, spec)
        self.region.shares, self.region.dim = shares, dim
        try:
            return call(*args, **kwargs)
        finally:
            self.region.shares = None


def _own_input(leaf: Any, dim: int | None, shares: Shares, group: Group) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, Rows) and dim is not None and leaf._layout == Layout(shares, dim):
        part = part_or_none(leaf)
        if part is not None:
            return part
    whole = whole_of(leaf) if isinstance(leaf, Rows) else leaf
    return enter(whole, group) if dim is None else cut(whole, dim, shares, group)


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

"""Views of a batch that lies on several ranks: the same view of the rank's rows, while the batch stays in one piece.

A view keeps its base: when one of them is gathered, the others are views of the same whole again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from vivace.scale.layout import Layout
from vivace.scale.rows import RULES, UNKNOWN, Rows, all_whole, part_or_none

__all__: list[str] = []


def _answer(rows: Rows, found: tuple[Any, Layout], func: Any, args: Any, kwargs: Any) -> Any:
    """What was made of the rank's rows, one or several, as views of ``rows``."""
    made, layout = found
    if made is part_or_none(rows):
        return rows

    def again(base: torch.Tensor) -> Any:
        return func(base, *all_whole(args[1:]), **kwargs)

    if isinstance(made, torch.Tensor):
        return rows.seen_as(made, layout, again)
    return type(made)(rows.seen_as(each, layout, _piece(again, index)) for index, each in enumerate(made))


def _piece(make: Callable[[torch.Tensor], Any], index: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda base: make(base)[index]


def _view(decide: Callable[[Rows, torch.Tensor, Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """A rule from ``decide(rows, part, func, args, kwargs)``, which gives the part's view and its layout, or None."""

    def rule(func: Any, args: Any, kwargs: Any) -> Any:
        rows = args[0]
        if not isinstance(rows, Rows) or (part := part_or_none(rows)) is None:
            return UNKNOWN
        try:
            found = decide(rows, part, func, args, kwargs)
        except (RuntimeError, IndexError, TypeError, ValueError):  # torch says it better on the real tensor
            return UNKNOWN
        return UNKNOWN if found is None else _answer(rows, found, func, args, kwargs)

    return rule


def _without_numbers(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tuple(tensor.shape), dtype=tensor.dtype, device="meta")


def _reshaped(rows: Rows, part: torch.Tensor, func: Any, args: Any, kwargs: Any) -> Any:
    """Entries stay in their order: ``view``, ``flatten``, ``unsqueeze``, …"""
    others = tree_map(lambda leaf: _without_numbers(leaf) if isinstance(leaf, torch.Tensor) else leaf, args[1:])
    after = func(_without_numbers(rows), *others, **kwargs)
    if after.dtype != rows.dtype or after.numel() != rows.numel():
        return None
    layout = rows._layout.viewed(rows.shape, after.shape)
    return None if layout is None else (part.reshape(layout.part_shape(after.shape)), layout)


def _permuted(rows: Rows, part: torch.Tensor, func: Any, args: Any, kwargs: Any) -> Any:
    sizes = range(2, 2 + rows.dim())  # all different: the shape tells where each dimension went
    after = func(torch.empty(tuple(sizes), device="meta"), *args[1:], **kwargs)
    return func(part, *args[1:], **kwargs), rows._layout.at(tuple(after.shape).index(sizes[rows._layout.dim]))


def _expanded(rows: Rows, part: torch.Tensor, func: Any, args: Any, kwargs: Any) -> Any:
    others = tree_map(lambda leaf: _without_numbers(leaf) if isinstance(leaf, torch.Tensor) else leaf, args[1:])
    after = func(_without_numbers(rows), *others, **kwargs)
    layout = rows._layout.at(rows._layout.dim + after.dim() - rows.dim())
    return part.expand(layout.part_shape(after.shape)), layout


def _along(at: int, default: int | None, removes: bool) -> Any:
    """A piece along another dimension; its number is word ``at``, or ``dim=``."""

    def decide(rows: Rows, part: torch.Tensor, func: Any, args: Any, kwargs: Any) -> Any:
        dim = kwargs.get("dim", args[at] if len(args) > at else default)
        if not isinstance(dim, int) or dim % rows.dim() == rows._layout.dim:
            return None
        gone = removes and dim % rows.dim() < rows._layout.dim
        return func(part, *args[1:], **kwargs), rows._layout.at(rows._layout.dim - gone)

    return decide


def _same_place(rows: Rows, part: torch.Tensor, func: Any, args: Any, kwargs: Any) -> Any:
    return func(part, *args[1:], **kwargs), rows._layout


def _indexed(rows: Rows, part: torch.Tensor, func: Any, args: Any, kwargs: Any) -> Any:
    """``x[:, 0]``, ``x[:, None, :-1]``: numbers and slices, all of the batch."""
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    simple = all(item is None or item is Ellipsis or type(item) in (int, slice) for item in index)
    if not simple or list(map(id, index)).count(id(Ellipsis)) > 1:
        return None
    used = sum(item is not None and item is not Ellipsis for item in index)
    if Ellipsis not in index:
        index = (*index, Ellipsis)
    at = index.index(Ellipsis)
    full = (*index[:at], *[slice(None)] * (rows.dim() - used), *index[at + 1 :])
    dim, place = 0, 0
    for item in full:
        if item is None:
            place += 1
            continue
        if dim == rows._layout.dim:
            return (part[full], rows._layout.at(place)) if item == slice(None) else None
        place += not isinstance(item, int)
        dim += 1
    return None


def _install() -> None:
    for names, decide in (
        ("view reshape flatten unflatten view_as reshape_as unsqueeze squeeze", _reshaped),
        ("transpose permute t swapaxes swapdims movedim T.__get__ mT.__get__", _permuted),
        ("expand expand_as", _expanded),
        ("narrow", _along(1, None, removes=False)),
        ("select", _along(1, None, removes=True)),
        ("unbind", _along(1, 0, removes=True)),
        ("chunk split", _along(2, 0, removes=False)),
        ("detach data.__get__", _same_place),
        ("__getitem__", _indexed),
    ):
        RULES.update(dict.fromkeys(names.split(), _view(decide)))


_install()

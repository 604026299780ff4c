"""A batch of which each rank holds its rows. To the script it is a tensor of the whole batch.

What the script does with it sample by sample is done with the rank's rows (``row_rules``); sums and losses over the
batch go through the ranks. Anything else gathers it first: always right, only slower. Once it was gathered it stays
whole, so that a change in place is seen through every view of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from vivace.measure.inside.places import user_place
from vivace.scale.errors import ScaleError
from vivace.scale.group import Group
from vivace.scale.layout import Layout

__all__ = ["PROOF", "UNKNOWN", "Rows", "all_whole", "asked_by", "gathers", "name_of", "part_or_none", "whole_of"]

UNKNOWN: Any = object()
"""The answer of a rule that does not cover this call."""

RULES: dict[str, Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = {}
"""The name of a torch function → what it does with rows; filled by ``row_rules`` and ``losses``."""

PROOF = "proof"
"""Who asks for a whole batch to show that a split is right: no doing of the script's."""

gathers: dict[tuple[str, str, int, str], tuple[int, int]] = {}
"""What was gathered: the function that asked, file, line and code of the script → how often, and how many bytes."""


class Rows(torch.Tensor):
    """Made by ``Rows.of``. It has the shape of the whole and no storage of its own."""

    _part: torch.Tensor | None
    _whole: torch.Tensor | None
    _layout: Layout
    _group: Group
    _view_of: Rows | None
    _how: Callable[[torch.Tensor], torch.Tensor] | None

    @staticmethod
    def of(part: torch.Tensor, layout: Layout, group: Group) -> Rows:
        make: Any = torch.Tensor._make_wrapper_subclass
        rows: Rows = make(
            Rows, layout.whole_shape(part.shape), dtype=part.dtype, device=part.device, requires_grad=False
        )
        rows._part, rows._whole, rows._layout, rows._group = part, None, layout, group
        rows._view_of, rows._how = None, None
        return rows

    def seen_as(self, part: torch.Tensor, layout: Layout, how: Callable[[torch.Tensor], torch.Tensor]) -> Rows:
        """A view of these rows: ``how`` makes the same view of the whole."""
        view = Rows.of(part, layout, self._group)
        view._view_of, view._how = self, how
        return view

    def looked_at(self) -> torch.Tensor:
        """The whole, for vivace's own eyes: the script's batch stays as it is. Every rank must ask."""
        if self._whole is not None:
            return self._whole
        part = part_or_none(self)
        return whole_of(self) if part is None else self._layout.gather(part.detach(), self._group)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = name_of(func)
        rule = RULES.get(name)
        if rule is not None:
            answer = rule(func, args, kwargs)
            if answer is not UNKNOWN:
                return answer
        with asked_by(name):
            args, kwargs = all_whole((args, kwargs))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Reached only around torch's Python functions, below gradients: those must not be lost."""
        if func is torch.ops.aten.detach.default and (part := part_or_none(args[0])) is not None:  # Variable(x)
            return args[0].seen_as(part.detach(), args[0]._layout, lambda whole: whole.detach())
        if torch.is_grad_enabled() and any(_has_gradient(value) for value in args):
            raise ScaleError(f"{func} was called around torch's Python functions with a part of a batch")
        with asked_by(str(func)):
            args, kwargs = all_whole((args, kwargs or {}))
        return func(*args, **kwargs)


def whole_of(rows: Rows) -> torch.Tensor:
    """All rows, on every rank. Every rank must ask."""
    if rows._whole is not None:
        return rows._whole
    if rows._view_of is not None and rows._how is not None:
        rows._whole = rows._how(whole_of(rows._view_of))
    else:
        assert rows._part is not None
        _only_in_the_main_thread()
        rows._whole = rows._layout.gather(rows._part, rows._group)
        _note_gather(rows._whole)
    rows._part = None
    return rows._whole


def _note_gather(whole: torch.Tensor) -> None:
    if _ASKING[-1:] == [PROOF]:
        return
    found = user_place(2) or {"file": "", "line": 0, "code": ""}
    place = (_ASKING[-1] if _ASKING else "the model", str(found["file"]), int(found["line"]), str(found["code"]))
    calls, size = gathers.get(place, (0, 0))
    gathers[place] = (calls + 1, size + whole.numel() * whole.element_size())


def part_or_none(rows: Rows) -> torch.Tensor | None:
    """This rank's rows, as long as the batch was not gathered."""
    root = rows
    while root._view_of is not None:
        root = root._view_of
    return None if root._whole is not None else rows._part


def all_whole(tree: Any) -> Any:
    """The same structure with every batch gathered."""
    return tree_map(lambda leaf: whole_of(leaf) if isinstance(leaf, Rows) else leaf, tree)


def name_of(func: Any) -> str:
    """``add`` of ``torch.add``; ``shape.__get__`` of the attribute."""
    name = str(getattr(func, "__name__", ""))
    if name in ("__get__", "__set__", "__delete__"):
        return f"{getattr(getattr(func, '__self__', None), '__name__', '')}.{name}"
    return name


def _has_gradient(value: Any) -> bool:
    return isinstance(value, Rows) and (part := part_or_none(value)) is not None and part.requires_grad


_ASKING: list[str] = []


class asked_by:
    """For the table of what was gathered."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        _ASKING.append(self.name)

    def __exit__(self, *_: Any) -> None:
        _ASKING.pop()


def _only_in_the_main_thread() -> None:
    if threading.current_thread() is not threading.main_thread():
        raise ScaleError(
            "a thread of the script reads a batch that lies on several ranks; read it in the main thread, "
            "for example with .tolist()"
        )

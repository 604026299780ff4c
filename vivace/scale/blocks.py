"""The repeated blocks of a model: layers of one kind, one after the other. Each is gathered and freed by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["repeated_blocks"]


def repeated_blocks(root: torch.nn.Module, may_be: Callable[[torch.nn.Module], bool]) -> list[torch.nn.Module]:
    """The outermost children of one parent that are alike, in class and in the shapes of their parameters.

    A block whose parameter is used outside of it as well (tied weights) is none. ``may_be`` has the last word.
    """
    uses = Counter(id(each) for _, each in root.named_parameters(remove_duplicate=False))
    found: list[torch.nn.Module] = []
    _search(root, uses, may_be, found)
    return found


def _search(parent: torch.nn.Module, uses: Counter[int], may_be: Any, found: list[torch.nn.Module]) -> None:
    children = list(dict.fromkeys(parent.children()))
    kinds = Counter(_kind(child) for child in children)
    for child in children:
        kind = _kind(child)
        if kind is not None and kinds[kind] > 1 and _is_closed(child, uses) and may_be(child):
            found.append(child)
        else:
            _search(child, uses, may_be, found)


def _kind(module: torch.nn.Module) -> Any:
    shapes = tuple((name, each.shape) for name, each in module.named_parameters())
    return (type(module), shapes) if shapes else None


def _is_closed(block: torch.nn.Module, uses: Counter[int]) -> bool:
    inside = Counter(id(each) for _, each in block.named_parameters(remove_duplicate=False))
    return all(uses[key] == count for key, count in inside.items())

"""Objects of a library's or the script's own that hold tensors (a cache of keys and values), among a model's outputs.

torch does not look into them; here the tensors in them are found, so that they are outputs like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from vivace.scale.rows import Rows, whole_of

__all__ = ["Opaque", "deep_leaves", "made_whole", "tensors_in"]

_DEPTH = 4


@dataclass(frozen=True)
class Opaque:
    """Stands for such an object in a list of leaves; its tensors follow."""

    kind: type


def tensors_in(value: Any, depth: int = _DEPTH) -> list[tuple[Any, Any]]:
    """(dict or list, key) of each tensor in the object, always in the same order."""
    found: list[tuple[Any, Any]] = []
    for home in _homes(value) if depth else []:
        for key, each in list(home.items() if isinstance(home, dict) else enumerate(home)):
            if isinstance(each, torch.Tensor):
                found.append((home, key))
            elif each is not value and not callable(each):
                found += tensors_in(each, depth - 1)
    return found


def _homes(value: Any) -> list[Any]:
    """Where it keeps things: as a dict or list, and in its attributes."""
    if isinstance(value, (type, torch.nn.Module)):
        return []
    own = [value] if isinstance(value, (dict, list)) else []
    return [*own, value.__dict__] if isinstance(getattr(value, "__dict__", None), dict) else own


def deep_leaves(tree: Any) -> list[Any]:
    """The leaves of a structure, those inside opaque objects with them."""
    leaves: list[Any] = []
    for leaf in tree_flatten(tree)[0]:
        inside = [] if isinstance(leaf, torch.Tensor) else tensors_in(leaf)
        leaves += [Opaque(type(leaf)), *(home[key] for home, key in inside)] if inside else [leaf]
    return leaves


def made_whole(tree: Any) -> None:
    """Batches inside opaque objects are gathered, in place."""
    for leaf in tree_flatten(tree)[0]:
        if not isinstance(leaf, torch.Tensor):
            for home, key in tensors_in(leaf):
                if isinstance(home[key], Rows):
                    home[key] = whole_of(home[key])

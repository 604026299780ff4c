"""Copies of a sharded model that are not sharded: what ``copy.deepcopy`` and ``torch.save(model)`` give a script."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils._pytree import tree_map

from vivace.measure.inside.patches import in_place_of
from vivace.scale.sharded import Sharded

__all__ = ["plain_copy", "save_plain"]

_MARKS = ("_is_fsdp_managed_module", "_fsdp_use_orig_params", "__composable_api")
"""How the attributes begin that FSDP2 adds to a module."""


def plain_copy(module: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
    """The copy of a module that FSDP2 has changed, with everything in it, as the script made it."""
    was: Any = type(module).__mro__[2]
    made: Any = was.__new__(was)
    memo[id(module)] = made
    for name, value in module.__dict__.items():
        if not name.startswith(_MARKS):
            made.__dict__[name] = copy.deepcopy(_without_hooks(name, value), memo)
    for each in made.modules():
        for name, value in list(each.__dict__.items()):
            each.__dict__[name] = _without_hooks(name, value)
            if name.startswith(_MARKS):
                del each.__dict__[name]
    return made


def _without_hooks(name: str, value: Any) -> Any:
    """Hooks of the script's stay."""
    if not name.endswith("_hooks") or not isinstance(value, dict):
        return value
    return type(value)((key, hook) for key, hook in value.items() if not _is_fsdp(hook))


def _is_fsdp(hook: Any) -> bool:
    function = getattr(hook, "hook", hook)  # as load_state_dict wraps it
    homes = (getattr(function, "__module__", ""), type(getattr(function, "__self__", None)).__module__)
    return any(str(home).startswith("torch.distributed.fsdp") for home in homes)


def save_plain() -> None:
    """``torch.save`` of a model: the file is the one that a single process writes."""
    original = torch.save

    def plain(leaf: Any) -> Any:
        if isinstance(leaf, torch.nn.Module) and any(isinstance(each, Sharded) for each in leaf.parameters()):
            return copy.deepcopy(leaf)
        return leaf

    def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
        return original(tree_map(plain, obj), *args, **kwargs)

    torch.save = in_place_of(original, save)

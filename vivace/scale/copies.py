"""Copies of a sharded model that are not sharded: what ``copy.deepcopy``, ``torch.save(model)`` and traces get."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_map

from vivace.measure.inside.patches import in_place_of
from vivace.scale.errors import ScaleError
from vivace.scale.sharded import Sharded

__all__ = ["plain_copy", "save_plain", "trace_plain"]

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

    def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
        return original(tree_map(_plain, obj), *args, **kwargs)

    torch.save = in_place_of(original, save)


def trace_plain() -> None:
    """``torch.jit.trace`` and ``script`` of a model, as it is now. One that is called after the next step of an
    optimizer would be of old weights, and says so."""
    for name in ("trace", "script"):
        setattr(torch.jit, name, _of_plain(getattr(torch.jit, name)))


def _of_plain(original: Any) -> Any:
    def make(obj: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(_plain(obj), *args, **kwargs)
        if _is_sharded(obj):
            _ends_with_the_next_step(made)
        return made

    return in_place_of(original, make)


def _ends_with_the_next_step(traced: Any) -> None:
    steps = 0

    def count(*_: Any) -> None:
        nonlocal steps
        steps += 1

    def check(*_: Any) -> None:
        if steps:
            raise ScaleError("a traced copy of a sharded model is called after its weights have changed: trace it anew")

    register_optimizer_step_post_hook(count)
    traced.register_forward_pre_hook(check)


def _plain(leaf: Any) -> Any:
    return copy.deepcopy(leaf) if _is_sharded(leaf) else leaf


def _is_sharded(leaf: Any) -> bool:
    return isinstance(leaf, torch.nn.Module) and any(isinstance(each, Sharded) for each in leaf.parameters())

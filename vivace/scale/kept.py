"""What a model keeps from its forward: attributes that hold tensors (a hidden state, an auxiliary loss).

Inside the split they hold this rank's rows, outside they must look whole: they are outputs like any other, and inputs
of the next call. Also here: how a model is put back after a trial run, and hooks that would see parts.
"""

from __future__ import annotations

import contextlib
import copy
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from vivace.scale.group import Group
from vivace.scale.rows import Rows, part_or_none, whole_of

__all__ = ["hooked", "inside_rows", "kept_since", "put_back", "set_kept", "structure", "tensors_kept"]

_OWN = frozenset(("_parameters", "_buffers", "_modules"))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def hooked(root: torch.nn.Module) -> str | None:
    """Why hooks forbid a split: a hook of the script's on a layer would see a part of the batch."""
    for name, module in root.named_modules():
        if (home := _home_of_hook(module)) is not None:
            return f"a hook of {home} on {name or type(root).__name__} would see a part of the batch"
    return None


def structure(root: torch.nn.Module) -> tuple[Any, ...]:
    """What a script may change between two calls, and the way a call is split depends on: names of parameters
    (pruning, weight norm) and hooks of its own."""
    return tuple((*module._parameters.keys(), _home_of_hook(module)) for module in root.modules())


def _home_of_hook(module: torch.nn.Module) -> str | None:
    """The module in which the first hook of the script's was written."""
    own = module.__dict__  # what TorchScript has is no script's
    for kind in _HOOKS:
        for hook in (own.get(kind) or {}).values():
            home = getattr(hook, "__module__", None) or type(hook).__module__
            if home.split(".")[0] not in ("torch", "vivace"):
                return str(home)
    return None


def tensors_kept(root: torch.nn.Module, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Attributes of its modules that hold tensors, below their names; of ``names`` only where they are known."""
    if names is not None:
        asked = sorted(names)
        modules = dict(root.named_modules()) if asked else {}
        pairs = ((name, *name.rpartition(".")[::2]) for name in asked)
        return {
            name: modules[path].__dict__[attribute]
            for name, path, attribute in pairs
            if path in modules and attribute in modules[path].__dict__
        }
    found = {}
    for path, module in root.named_modules():
        for attribute, value in module.__dict__.items():
            if attribute not in _OWN and not isinstance(value, torch.nn.Module) and _holds_tensors(value):
                found[f"{path}.{attribute}"] = value
    return found


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    return isinstance(value, (list, tuple, dict)) and any(isinstance(x, torch.Tensor) for x in tree_flatten(value)[0])


def kept_since(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What is new: another tensor, or a list that holds others."""
    return {name: value for name, value in after.items() if name not in before or _ids(value) != _ids(before[name])}


def _ids(value: Any) -> list[int]:
    return [id(leaf) for leaf in tree_flatten(value)[0]]


def set_kept(root: torch.nn.Module, kept: dict[str, Any]) -> None:
    modules = dict(root.named_modules()) if kept else {}
    for name, value in kept.items():
        path, _, attribute = name.rpartition(".")
        modules[path].__dict__[attribute] = value


@contextlib.contextmanager
def inside_rows(root: torch.nn.Module, names: Iterable[str], group: Group, whole: bool) -> Iterator[None]:
    """While the forward runs, what it kept last time is this rank's rows again (or, for a ``whole`` run, whole)."""
    held = {name: value for name, value in tensors_kept(root, names).items() if _has_rows(value)}
    if not held:
        yield
        return

    def seen(leaf: Any) -> Any:
        if not isinstance(leaf, Rows):
            return leaf
        if whole:
            return whole_of(leaf)
        part = part_or_none(leaf)
        return leaf._layout.cut(whole_of(leaf), group) if part is None else part

    given = {name: tree_map(seen, value) for name, value in held.items()}
    set_kept(root, given)
    try:
        yield
    finally:
        now = tensors_kept(root, names)
        set_kept(root, {name: held[name] for name, value in given.items() if now.get(name) is value})


def _has_rows(value: Any) -> bool:
    return any(isinstance(leaf, Rows) for leaf in tree_flatten(value)[0])


@contextlib.contextmanager
def put_back(root: torch.nn.Module, always: bool = True) -> Iterator[None]:
    """Generators, buffers and attributes of the modules are afterwards as they were before; unless ``always``, only
    after an error."""
    attributes = [(module, _copied(module.__dict__)) for module in root.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in root.buffers()]
    generators = _generators()
    failed = True
    try:
        yield
        failed = False
    finally:
        if always or failed:
            for module, state in attributes:
                _restore(module, state)
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
            for put, state in generators:
                put(state)


def _copied(attributes: dict[str, Any]) -> dict[str, Any]:
    """Lists, sets and dicts with their content: a forward may append to them."""
    return {
        name: (value, copy.copy(value)) if type(value) in (list, set, dict) and name not in _OWN else (value, value)
        for name, value in attributes.items()
    }


def _restore(module: torch.nn.Module, state: dict[str, Any]) -> None:
    module.__dict__.clear()
    for name, (value, content) in state.items():
        if content is not value:
            value.clear()
            value.extend(content) if isinstance(value, list) else value.update(content)
        module.__dict__[name] = value


def _generators() -> list[tuple[Any, Any]]:
    """(function that sets it, state) of each global generator: torch's, Python's, numpy's."""
    found: list[tuple[Any, Any]] = [(torch.set_rng_state, torch.get_rng_state()), (random.setstate, random.getstate())]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found.append((torch.cuda.set_rng_state, torch.cuda.get_rng_state()))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        found.append((numpy.random.set_state, numpy.random.get_state()))
    return found

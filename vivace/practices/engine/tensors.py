"""Change the tensors inside inputs, outputs and batches, whatever they are nested in."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vivace.practices.engine.torch_later import torch

__all__ = ["map_tensors", "tensors_to_optimize"]


def map_tensors(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same nesting with every tensor replaced; what has none is returned as it is, as the same object.

    What is given is the script's, and never written to. What cannot be copied is returned as it is, too.
    """
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return _map_mapping(value, function)
    if type(value) in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_make")):  # a namedtuple
        mapped = [map_tensors(item, function) for item in value]
        if all(a is b for a, b in zip(mapped, value)):
            return value
        return value._make(mapped) if hasattr(value, "_make") else type(value)(mapped)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _map_dataclass(value, function)
    return value


def tensors_to_optimize(params: Any) -> Iterator[torch.Tensor]:
    """What an optimizer's first argument holds: a tensor, tensors, (name, tensor) pairs, or groups of them."""
    for item in params if not isinstance(params, torch.Tensor) else [params]:
        if isinstance(item, dict):
            yield from tensors_to_optimize(item["params"])
        else:
            yield item[1] if isinstance(item, tuple) else item


def _map_mapping(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    changed = {k: m for k, item in value.items() if (m := map_tensors(item, function)) is not item}
    if not changed:
        return value
    return {**value, **changed} if type(value) is dict else _copy_of_mapping(value, changed)


def _copy_of_mapping(value: Any, changed: dict[Any, Any]) -> Any:
    """Key by key, for the type stays: a transformers ModelOutput is a dict and a dataclass.

    A type of the script's own may share its store with its copy: then the script's items are put back.
    """
    before = {key: value[key] for key in changed}
    try:
        copied = copy.copy(value)
        for key, item in changed.items():
            copied[key] = item
    except Exception:
        copied = value
    for key, item in before.items():
        if value[key] is not item:
            value[key] = item
            copied = value
    return copied


def _map_dataclass(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Field by field on a copy: to construct another would compute again what ``__post_init__`` computes."""
    changed = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name, None)
        if (mapped := map_tensors(item, function)) is not item:
            changed[field.name] = mapped
    if not changed:
        return value
    try:
        copied = copy.copy(value)
    except Exception:
        return value
    if copied is not value:
        for name, item in changed.items():
            object.__setattr__(copied, name, item)  # frozen ones, too
    return copied

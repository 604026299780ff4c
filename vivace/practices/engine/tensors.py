"""Change the tensors inside inputs, outputs and batches, whatever they are nested in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

__all__ = ["map_tensors", "tensors_to_optimize"]


def map_tensors(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same nesting with every tensor replaced; what has none is returned as it is, as the same object."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return _map_mapping(value, function)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, function) for item in value))
    if type(value) in (list, tuple):
        mapped = [map_tensors(item, function) for item in value]
        return value if all(a is b for a, b in zip(mapped, value, strict=True)) else type(value)(mapped)
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
    """A transformers ModelOutput is a dict and a dataclass: it is changed in place, key by key."""
    changed = {k: m for k, item in value.items() if (m := map_tensors(item, function)) is not item}
    if not changed:
        return value
    if type(value) is dict:
        return {**value, **changed}
    for key, item in changed.items():
        value[key] = item
    return value


def _map_dataclass(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    changed = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if (mapped := map_tensors(item, function)) is not item:
            changed[field.name] = mapped
    return dataclasses.replace(value, **changed) if changed else value

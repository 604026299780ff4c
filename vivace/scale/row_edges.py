"""Ways around torch's Python functions: there a batch is gathered before it goes in."""

from __future__ import annotations

from typing import Any

import torch

from vivace.measure.inside.patches import in_place_of
from vivace.scale.rows import all_whole

__all__ = ["whole_at_the_edges"]


def whole_at_the_edges() -> None:
    _own_functions()
    _compiled_functions()


def _own_functions() -> None:
    """``autograd.Function.apply`` goes straight to C++."""
    original: Any = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = all_whole((args, kwargs))
        return original(cls, *args, **kwargs)

    torch.autograd.Function.apply = classmethod(in_place_of(original, apply))  # type: ignore[assignment,method-assign]


def _compiled_functions() -> None:
    """A compiled function of the script's gets plain tensors. Compiled models are split as others are."""
    original = torch.compile

    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if model is None or isinstance(model, torch.nn.Module):
            made = original(model, *args, **kwargs)
            return made if model is not None else lambda function: _given_whole(made(function), function)
        return _given_whole(original(model, *args, **kwargs), model)

    torch.compile = in_place_of(original, compile)


def _given_whole(compiled: Any, function: Any) -> Any:
    if isinstance(compiled, torch.nn.Module) or isinstance(function, type):
        return compiled

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = all_whole((args, kwargs))
        return compiled(*args, **kwargs)

    return in_place_of(function, call) if hasattr(function, "__code__") else call

"""Where torch runs a model for another purpose than the script's next numbers: traces, and transforms of functions.

There every rank runs it whole: a trace must not hold one rank's part, and exchanges cannot be transformed.
"""

from __future__ import annotations

from typing import Any

import torch

from vivace.measure.inside.patches import in_place_of
from vivace.scale.rows import all_whole
from vivace.scale.sharded import all_plain

__all__ = ["is_traced", "is_transformed", "whole_in_transforms"]

_OF_FUNCTIONS = ("grad", "grad_and_value", "vmap", "jacrev", "jacfwd", "hessian", "functionalize")
_level: Any = getattr(getattr(torch._C, "_functorch", None), "maybe_current_level", lambda: None)


def is_traced() -> bool:
    """By TorchScript."""
    return torch._C._get_tracing_state() is not None


def is_transformed() -> bool:
    """Inside a function that ``torch.func`` has changed."""
    return _level() is not None


def whole_in_transforms() -> None:
    """What is given to ``torch.func`` is gathered before it goes in."""
    for name in _OF_FUNCTIONS:
        if hasattr(torch.func, name):
            setattr(torch.func, name, _transform(getattr(torch.func, name)))
    torch.vmap = torch.func.vmap
    for name in ("vjp", "jvp"):
        setattr(torch.func, name, _at_once(getattr(torch.func, name)))


def _transform(original: Any) -> Any:
    def transform(*args: Any, **kwargs: Any) -> Any:
        changed = original(*args, **kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = all_plain(all_whole((args, kwargs)))
            return changed(*args, **kwargs)

        return call

    return in_place_of(original, transform)


def _at_once(original: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = all_plain(all_whole((args, kwargs)))
        return original(*args, **kwargs)

    return in_place_of(original, call)

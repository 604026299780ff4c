"""Whether this process trains: told by optimizer steps or, where no optimizer was made, by backward passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook

from vivace.measure.inside.patches import in_place_of
from vivace.practices.engine.parts import Parts

__all__ = ["watch_training"]


class _Training:
    def __init__(self, parts: Parts, on_step: Callable[[], None]) -> None:
        self.parts, self.on_step = parts, on_step
        self.optimizer_made = False
        self.told_by_hand = False

    def by_hand(self) -> bool:
        return not (self.optimizer_made or self.parts.asleep or is_compiling())

    def before_backward(self) -> None:
        if not self.told_by_hand:
            self.told_by_hand = True
            self.parts.no_optimizer()


def watch_training(parts: Parts, on_step: Callable[[], None]) -> None:
    """``on_step`` is called after each optimizer step; after each backward pass of a script without an optimizer."""
    training = _Training(parts, on_step)

    def after_step(*_: Any) -> None:
        on_step()

    after_step._torchdynamo_disable = True  # type: ignore[attr-defined]
    register_optimizer_step_post_hook(after_step)
    _watch_creation(training)
    for name in ("backward", "grad"):
        setattr(torch.autograd, name, _watched(training, getattr(torch.autograd, name)))


def _watch_creation(training: _Training) -> None:
    original = torch.optim.Optimizer.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        training.optimizer_made = True
        original(self, *args, **kwargs)

    torch.optim.Optimizer.__init__ = in_place_of(original, init)  # type: ignore[method-assign]


def _watched(training: _Training, original: Any) -> Any:
    def differentiate(*args: Any, **kwargs: Any) -> Any:
        if not training.by_hand():
            return original(*args, **kwargs)
        training.before_backward()
        result = original(*args, **kwargs)
        training.on_step()
        return result

    return in_place_of(original, differentiate)

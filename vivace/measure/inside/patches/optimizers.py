"""Optimizer steps, also those that a GradScaler decides to skip. The outermost call counts; wrappers nest."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from vivace.measure.inside.patches import unseen_by_dynamo
from vivace.measure.inside.recorder import Recorder

__all__ = ["install"]


class _Nesting:
    """The optimizers whose step is running, outermost first, and whether any of them really stepped."""

    def __init__(self) -> None:
        self.running: list[int] = []
        self.stepped = False

    def enter(self, optimizer: Any) -> bool:
        """True for the outermost call. One already listed means that its last step raised: forget that one."""
        if id(optimizer) in self.running:
            del self.running[self.running.index(id(optimizer)) :]
        self.running.append(id(optimizer))
        return len(self.running) == 1

    def leave(self) -> bool:
        if self.running:
            self.running.pop()
        self.stepped = True
        return not self.running


def install(recorder: Recorder, on_first: Any, on_step: Any) -> None:
    """``on_first(device)`` arms the recorder where no backward was seen; ``on_step(optimizer, skipped)`` is called
    after the outermost step and leaves the closing mark itself."""
    nesting = _Nesting()

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not recorder.armed:
            on_first(_device_of(optimizer))
        if recorder.here() and nesting.enter(optimizer):
            recorder.mark("opt+")

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if recorder.here() and nesting.leave():
            on_step(optimizer, False)

    before._torchdynamo_disable = True  # type: ignore[attr-defined]
    after._torchdynamo_disable = True  # type: ignore[attr-defined]
    register_optimizer_step_pre_hook(unseen_by_dynamo(before))
    register_optimizer_step_post_hook(unseen_by_dynamo(after))
    _watch_the_scaler(recorder, nesting, on_step)


def _device_of(optimizer: Any) -> torch.device:
    return optimizer.param_groups[0]["params"][0].device


def _watch_the_scaler(recorder: Recorder, nesting: _Nesting, on_step: Any) -> None:
    original = torch.amp.GradScaler.step

    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if nesting.running or not recorder.here():
            return original(self, optimizer, *args, **kwargs)
        nesting.enter(self)
        nesting.stepped = False
        recorder.mark("opt+")
        try:
            result = original(self, optimizer, *args, **kwargs)
        finally:
            stepped = nesting.stepped
            nesting.running.clear()
        on_step(optimizer, not stepped)
        return result

    torch.amp.GradScaler.step = unseen_by_dynamo(step)  # type: ignore[method-assign]

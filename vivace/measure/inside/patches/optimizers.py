"""Optimizer steps, also those that a GradScaler decides to skip. The outermost call counts; wrappers nest."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from vivace.measure.inside.patches import in_place_of, unseen_by_dynamo
from vivace.measure.inside.steps.recorder import Recorder

__all__ = ["install"]


class _Scaler:
    """Whether a GradScaler's step is running, and whether the optimizer inside it really stepped."""

    def __init__(self) -> None:
        self.running = False
        self.stepped = False


def _is_outermost() -> bool:
    """Optimizers wrap and subclass each other, and a step may raise: only the call stack knows how deep we are."""
    depth, frame = 0, sys._getframe(2)
    while frame is not None:
        depth += frame.f_code is _HOOKED_STEP
        frame = frame.f_back  # type: ignore[assignment]
    return depth <= 1


# The code of torch's wrapper around every optimizer's step, in which the hooks run.
_HOOKED_STEP = torch.optim.Optimizer.profile_hook_step(lambda self: None).__code__


def install(recorder: Recorder, session: Any) -> None:
    """``session.begin(device)`` arms the recorder for the thread and device that really train.
    ``session.before_step(optimizer)`` is called before the outermost step, ``session.on_step(optimizer, skipped)``
    after it; that one leaves the closing mark itself."""
    scaler = _Scaler()

    def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
        if recorder.in_backward():  # in a hook, perhaps in the autograd engine's thread
            session.by_hand.stepped_in_backward()
            return None
        with contextlib.suppress(Exception):
            session.begin(_device_of(optimizer))
        if not recorder.here() or not _is_outermost():
            return None
        session.before_step(optimizer)
        if scaler.running:
            return None
        recorder.mark("opt+")
        return _with_calls_marked(recorder, args, kwargs)

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        scaler.stepped = True
        if recorder.here() and not scaler.running and _is_outermost():
            session.on_step(optimizer, False)

    # A compiled optimizer step must not be traced through our hooks.
    before._torchdynamo_disable = after._torchdynamo_disable = True  # type: ignore[attr-defined]
    register_optimizer_step_pre_hook(unseen_by_dynamo(before))
    register_optimizer_step_post_hook(unseen_by_dynamo(after))
    _watch_the_scaler(recorder, scaler, session.on_step)


def _with_calls_marked(recorder: Recorder, args: Any, kwargs: Any) -> Any:
    """The arguments of a step whose closure leaves a mark at every call: L-BFGS calls it many times a step. None where
    there is no closure."""
    given = kwargs.get("closure") if len(args) < 2 else args[1]
    if not callable(given):
        return None

    def closure(*inside: Any, **named: Any) -> Any:
        if recorder.here():
            recorder.mark("closure")
        return given(*inside, **named)

    ours = unseen_by_dynamo(closure)
    return ((args[0], ours, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": ours})


def _device_of(optimizer: Any) -> torch.device:
    return optimizer.param_groups[0]["params"][0].device


def _watch_the_scaler(recorder: Recorder, scaler: _Scaler, on_step: Any) -> None:
    original = torch.amp.GradScaler.step

    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if scaler.running or not recorder.here():
            return original(self, optimizer, *args, **kwargs)
        scaler.running, scaler.stepped = True, False
        recorder.mark("opt+")
        try:
            result = original(self, optimizer, *args, **kwargs)
        finally:
            scaler.running = False
        on_step(optimizer, not scaler.stepped)
        return result

    torch.amp.GradScaler.step = in_place_of(original, step)  # type: ignore[method-assign]

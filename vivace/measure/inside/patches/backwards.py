"""Backward passes, the loss that each one starts from, and the point where only communication is left to wait for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.compiler import is_compiling

from vivace.measure.inside.by_hand import ByHand
from vivace.measure.inside.counting.flops import counting
from vivace.measure.inside.patches import in_place_of
from vivace.measure.inside.patches.debugging import Debugging
from vivace.measure.inside.steps.recorder import Recorder
from vivace.measure.inside.steps.timeline import NO_LOSS

__all__ = ["install"]


def install(recorder: Recorder, on_first_backward: Any, debugging: Debugging, by_hand: ByHand) -> None:
    """``on_first_backward(device)`` arms the recorder: a process that runs a backward is one that trains.
    ``by_hand`` follows the steps of scripts without an optimizer."""
    original_backward, original_grad = torch.autograd.backward, torch.autograd.grad
    unscaled: dict[int, torch.Tensor] = {}

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original_backward(tensors, *args, **kwargs)
        if not recorder.armed:
            with contextlib.suppress(Exception):
                on_first_backward(_device_of(tensors))
        if not recorder.here():
            return original_backward(tensors, *args, **kwargs)
        if counting():
            debugging.look()
        by_hand.before_backward(tensors)
        recorder.mark("bwd+", _loss_of(tensors, unscaled))
        recorder.inside = recorder.backward_runs = True
        recorder.backward_makes_graph = bool(kwargs.get("create_graph", args[2] if len(args) > 2 else False))
        try:
            _mark_when_gradients_are_done(recorder, tensors)
            return original_backward(tensors, *args, **kwargs)
        finally:
            recorder.inside = recorder.backward_runs = False
            recorder.mark("bwd-")
            by_hand.after_backward()

    def grad(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original_grad(*args, **kwargs)
        call = _GradCall(args, kwargs)
        args, kwargs = call.args, call.kwargs
        if not recorder.armed and not call.makes_graph:
            with contextlib.suppress(Exception):
                on_first_backward(_device_of(call.outputs))
        if not recorder.here():
            return original_grad(*args, **kwargs)
        trains = not call.makes_graph and by_hand.before_grad(call.outputs, call.inputs)
        recorder.mark("bwd+", _loss_of(call.outputs, unscaled) if trains else NO_LOSS)
        recorder.inside = recorder.backward_runs = True
        recorder.backward_makes_graph = call.makes_graph
        try:
            return original_grad(*args, **kwargs)
        finally:
            recorder.inside = recorder.backward_runs = False
            recorder.mark("bwd-")
            if trains:
                by_hand.after_backward()

    torch.autograd.backward = in_place_of(original_backward, backward)
    torch.autograd.grad = in_place_of(original_grad, grad)
    _remember_what_was_scaled(unscaled)


class _GradCall:
    """A call of ``torch.autograd.grad``: its arguments, and those of them that matter here."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = tuple(map(_lasting, args[:2])) + args[2:]
        self.kwargs = {n: _lasting(value) if n in ("outputs", "inputs") else value for n, value in kwargs.items()}
        self.outputs = self.kwargs.get("outputs", self.args[0] if self.args else ())
        self.inputs = self.kwargs.get("inputs", self.args[1] if len(self.args) > 1 else ())
        self.makes_graph = bool(kwargs.get("create_graph", args[4] if len(args) > 4 else False))


def _lasting(tensors: Any) -> Any:
    """``model.parameters()`` can be gone through only once."""
    return tuple(tensors) if isinstance(tensors, Iterator) else tensors


def _device_of(tensors: Any) -> torch.device:
    first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors))
    return first.device if isinstance(first, torch.Tensor) else first.node.metadata.get("device", torch.device("cpu"))


def _loss_of(tensors: Any, unscaled: dict[int, torch.Tensor]) -> torch.Tensor | float | None:
    """The scalar that backward starts from; on a GPU a copy there, for CUDA graphs reuse the original's memory."""
    tensor = tensors if isinstance(tensors, torch.Tensor) else None
    if tensor is None or tensor.numel() != 1 or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return None
    raw = unscaled.pop(id(tensor), None)
    loss = (tensor if raw is None else raw).detach()
    return loss.clone() if loss.is_cuda else loss.item()


def _remember_what_was_scaled(unscaled: dict[int, torch.Tensor]) -> None:
    """A GradScaler multiplies the loss; the record wants the loss itself."""
    original = torch.amp.GradScaler.scale

    def scale(self: Any, outputs: Any) -> Any:
        scaled = original(self, outputs)
        if isinstance(outputs, torch.Tensor) and outputs.numel() == 1 and self.is_enabled():
            unscaled.clear()  # one loss is in flight at a time; a dict only to match it by identity
            unscaled[id(scaled)] = outputs.detach()
        return scaled

    torch.amp.GradScaler.scale = in_place_of(original, scale)  # type: ignore[method-assign]


def _mark_when_gradients_are_done(recorder: Recorder, tensors: Any) -> None:
    """With several ranks, find the moment when the local gradients are done: the rest is exposed communication.

    DDP and FSDP wait for their collectives in callbacks that the autograd engine runs at the end of backward, in the
    order in which they were queued. A hook on the loss runs before any of theirs is queued, so ours comes first.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    tensor = tensors if isinstance(tensors, torch.Tensor) else None
    if tensor is None or not tensor.requires_grad:
        return

    def queue(_grad: torch.Tensor) -> None:
        torch.autograd.Variable._execution_engine.queue_callback(lambda: recorder.mark("bwd=", recorder.exchanges_over))

    tensor.register_hook(queue)

"""Catches the parts of a training job as they are made, and hands them to the changes that were asked for.

Each ``catch_…`` replaces one torch function by one that does the same with changed arguments. Only parts that some
change touches are caught. Inert in forked children (loader workers): the parent's changes are not theirs.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch.compiler import is_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import handle_torch_function, has_torch_function_unary
from torch.utils.data import DataLoader

from vivace.measure.inside.patches import in_place_of, unseen_by_dynamo
from vivace.measure.inside.patches.transfers import goes_to_gpu
from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.lacking import what_torch_lacks

__all__ = ["Parts"]

# All of torch's that can be fused or update many tensors at once (foreach).
_OPTIMIZERS = [
    getattr(torch.optim, name)
    for name in (
        "SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adafactor", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop",
        "Rprop",
    )
    if hasattr(torch.optim, name)  # torch 2.4 has no Adafactor
]  # fmt: skip
_WRAPPERS = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)


class Parts:
    """One per process. ``asleep`` in forked children."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        self.asleep = False
        self.inside = False  # a root's forward is running
        self.switching = False
        self.met: WeakSet[torch.nn.Module] = WeakSet()
        os.register_at_fork(after_in_child=self._fall_asleep)

    def _fall_asleep(self) -> None:
        self.asleep = True

    def touching(self, *parts: str) -> list[Change]:
        return [change for change in self.changes if any(change.touches(part) for part in parts)]

    def catch_what_measuring_goes_around(self) -> None:
        """Before measuring is installed: what it must see the user's side of (the loss before it is scaled)."""
        if changes := self.touching("loss"):
            _catch_backward(self, changes)

    def catch_the_rest(self) -> None:
        """After measuring is installed: changes stand around its marks, or their time would not be seen."""
        self.set_flags()
        if changes := self.touching("loader"):
            _catch_arguments(self, DataLoader, changes, "loader")
        if changes := self.touching("iterator"):
            _catch_iterators(self, changes)
        if changes := self.touching("wrapper"):
            _catch_arguments(self, torch.nn.parallel.DistributedDataParallel, changes, "wrapper")
        if changes := self.touching("optimizer", "optimizer_made"):
            for kind in _OPTIMIZERS:
                _catch_optimizer(self, kind, changes)
        if changes := self.touching("copy", "arrived"):
            _catch_copies(self, changes)
        if changes := self.touching("before_gradients_are_read"):
            _catch_readers(self, changes)
        if changes := self.touching("before_step", "after_step"):
            _catch_steps(self, changes)
        if changes := self.touching("cross_entropy"):
            _catch_cross_entropy(self, changes)
        _catch_roots(self)

    def catch_roots_to_switch(self) -> None:
        """For practices that are switched while the script trains: nothing is changed before."""
        self.switching = True
        _catch_roots(self)

    def set_flags(self) -> None:
        for change in self.touching("flags"):
            self.attempt_before_use(change, change.flags)

    def no_optimizer(self) -> None:
        for change in self.touching("no_optimizer"):
            self.attempt(change, change.no_optimizer)

    def attempt(self, change: Change, function: Any, *args: Any) -> Any:
        """Let a change do its work; a refusal is noted and the part stays as it is."""
        try:
            return function(*args)
        except NotApplicable as reason:
            _refuse(change, str(reason))
            return None

    def attempt_before_use(
        self, change: Change, function: Any, *args: Any, untouched: Callable[[], bool] = lambda: True
    ) -> None:
        """As ``attempt``, for a part that no code of the script has used yet: any error is the practice's own.

        It is a refusal then and the training goes on without; but not with a part that is changed by half.
        """
        done = change.done
        try:
            self.attempt(change, function, *args)
        except Exception as error:
            if not untouched():
                raise
            change.done = done
            if lacking := what_torch_lacks(error):
                _refuse(change, f"this torch ({torch.__version__}) has no {lacking}")
                return
            change.failed = change.refused is None
            _refuse(change, f"could not be applied: {_in_a_line(error)}")

    def change_arguments(self, change: Change, function: Any, arguments: dict[str, Any], *more: Any) -> None:
        """``function`` changes a constructor's arguments in place; an error of its own leaves them as they were."""
        before = dict(arguments)

        def put_back() -> bool:
            arguments.clear()
            arguments.update(before)
            return True

        self.attempt_before_use(change, function, *more, arguments, untouched=put_back)

    def prepare(self, root: torch.nn.Module) -> None:
        """A root is about to be wrapped or called for the first time."""
        if root in self.met:
            return
        self.met.add(root)
        if self.switching:
            if isinstance(root, _WRAPPERS):
                self.met.add(root.module)
            return
        self.set_flags()
        if isinstance(root, _WRAPPERS):  # its module was prepared before it was wrapped
            self.met.add(root.module)
            return
        for change in self.touching("model"):
            self._change_model(change, root)

    def _change_model(self, change: Change, root: torch.nn.Module) -> None:
        before = _looks(root)
        self.attempt_before_use(change, change.model, root, untouched=lambda: _looks(root) == before)


def _refuse(change: Change, reason: str) -> None:
    """The first reason is the one that is told. A later part may be changed nevertheless."""
    change.refused = change.refused or reason


def _catch_arguments(parts: Parts, kind: Any, changes: Sequence[Change], part: str) -> None:
    original = kind.__init__
    signature = inspect.signature(original)

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if parts.asleep:
            return original(self, *args, **kwargs)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        arguments = {name: value for name, value in bound.arguments.items() if name not in ("self", "kwargs")}
        for change in changes:
            parts.change_arguments(change, getattr(change, part), arguments)
        return original(self, **arguments, **bound.arguments.get("kwargs", {}))

    kind.__init__ = in_place_of(original, init)


def _catch_optimizer(parts: Parts, kind: type, changes: Sequence[Change]) -> None:
    original = kind.__init__  # type: ignore[misc]
    signature = inspect.signature(original)

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if parts.asleep or (type(self).__init__ is not init and getattr(self, "_vivace_changed", False)):
            original(self, *args, **kwargs)
            return
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        arguments = {name: value for name, value in bound.arguments.items() if name != "self"}
        if not isinstance(arguments["params"], torch.Tensor):
            arguments["params"] = list(arguments["params"])  # a generator can be looked through only once
        for change in changes:
            parts.change_arguments(change, change.optimizer, arguments, kind)
        self._vivace_changed = True  # Adam's constructor runs inside AdamW's
        try:
            original(self, **arguments)
        finally:
            del self._vivace_changed
        for change in changes:
            parts.attempt_before_use(change, change.optimizer_made, self)

    kind.__init__ = in_place_of(original, init)  # type: ignore[misc]


def _catch_iterators(parts: Parts, changes: Sequence[Change]) -> None:
    original = DataLoader.__iter__

    def start(self: Any) -> Any:
        iterator = original(self)
        if not parts.asleep:
            for change in changes:
                changed = parts.attempt(change, change.iterator, self, iterator)
                iterator = iterator if changed is None else changed  # an iterator of no known length has no truth
        return iterator

    DataLoader.__iter__ = in_place_of(original, start)  # type: ignore[method-assign]


def _catch_copies(parts: Parts, changes: Sequence[Change]) -> None:
    if not torch.cuda.is_available():
        return
    for name in ("to", "cuda"):
        setattr(torch.Tensor, name, _changed_copy(parts, getattr(torch.Tensor, name), changes, always=name == "cuda"))


def _changed_copy(parts: Parts, original: Any, changes: Sequence[Change], always: bool) -> Any:
    def transfer(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if type(self) is not torch.Tensor and has_torch_function_unary(self):
            return handle_torch_function(transfer, (self,), self, *args, **kwargs)
        if parts.asleep or parts.inside or not self.is_cpu or is_compiling():
            return original(self, *args, **kwargs)
        if not (always or goes_to_gpu(*args, **kwargs)):
            return original(self, *args, **kwargs)
        for change in changes:
            arrived = parts.attempt(change, change.arrived, self)
            if arrived is not None:
                return original(arrived, *args, **kwargs)
        if "non_blocking" not in kwargs and not any(type(arg) is bool for arg in args):
            for change in changes:
                parts.attempt(change, change.copy, self, kwargs)
        return original(self, *args, **kwargs)

    return in_place_of(original, transfer)


def _catch_backward(parts: Parts, changes: Sequence[Change]) -> None:
    original = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if parts.asleep or is_compiling() or not isinstance(tensors, torch.Tensor) or tensors.numel() != 1:
            return original(tensors, *args, **kwargs)
        for change in changes:
            changed = parts.attempt(change, change.loss, tensors)
            tensors = tensors if changed is None else changed
        try:
            return original(tensors, *args, **kwargs)
        finally:
            for change in changes:
                change.after_backward()

    torch.autograd.backward = in_place_of(original, backward)


def _catch_readers(parts: Parts, changes: Sequence[Change]) -> None:
    """torch's functions that read gradients before the optimizer does."""
    clipping = torch.nn.utils.clip_grad
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        watched = _after_changes(parts, getattr(clipping, name), changes)
        setattr(clipping, name, watched)
        setattr(torch.nn.utils, name, watched)
    scaler: Any = torch.amp.GradScaler
    scaler.unscale_ = _after_changes(parts, scaler.unscale_, changes)


def _after_changes(parts: Parts, original: Any, changes: Sequence[Change]) -> Any:
    def reading(*args: Any, **kwargs: Any) -> Any:
        if not parts.asleep and not is_compiling():
            for change in changes:
                parts.attempt(change, change.before_gradients_are_read)
        return original(*args, **kwargs)

    return in_place_of(original, reading)


def _catch_steps(parts: Parts, changes: Sequence[Change]) -> None:
    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not parts.asleep:
            for change in changes:
                parts.attempt(change, change.before_step, optimizer)

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not parts.asleep:
            for change in reversed(changes):
                parts.attempt(change, change.after_step, optimizer)

    for hook, register in ((before, register_optimizer_step_pre_hook), (after, register_optimizer_step_post_hook)):
        hook._torchdynamo_disable = True  # type: ignore[attr-defined]
        register(unseen_by_dynamo(hook))


def _catch_cross_entropy(parts: Parts, changes: Sequence[Change]) -> None:
    """Only where it is differentiated: a validation's loss stays as the script computes it."""
    functional: Any = torch.nn.functional
    original = functional.cross_entropy
    signature = inspect.signature(original)

    def cross_entropy(*args: Any, **kwargs: Any) -> Any:
        if parts.asleep or is_compiling():
            return original(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        scores, targets = arguments.pop("input"), arguments.pop("target")
        if not (torch.is_grad_enabled() and isinstance(scores, torch.Tensor) and scores.requires_grad):
            return original(*args, **kwargs)
        for change in changes:
            loss = parts.attempt(change, change.cross_entropy, original, scores, targets, arguments)
            if loss is not None:
                return loss
        return original(scores, targets, **arguments)

    functional.cross_entropy = in_place_of(original, cross_entropy)


def _catch_roots(parts: Parts) -> None:
    """The outermost call of a module with parameters; and wrapping, which must come after what changes a model."""
    previous = torch.nn.Module.__call__
    on_inputs, on_outputs = parts.touching("inputs"), parts.touching("outputs")
    around = parts.touching("forward")

    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if parts.inside:  # an inner module
            return (self._compiled_call_impl or self._call_impl)(*args, **kwargs)
        if is_compiling() or parts.asleep or _in_backward() or not _has_parameters(self):
            return previous(self, *args, **kwargs)
        parts.prepare(self)
        for change in on_inputs:
            if not change.on:
                continue
            args, kwargs = parts.attempt(change, change.inputs, self, args, kwargs) or (args, kwargs)
        parts.inside = True
        try:
            if not around:
                output = previous(self, *args, **kwargs)
            else:
                with contextlib.ExitStack() as stack:
                    _enter(stack, parts, around, self)
                    output = previous(self, *args, **kwargs)
        finally:
            parts.inside = False
        for change in on_outputs:
            if change.on:
                output = change.outputs(output)
        return output

    torch.nn.Module.__call__ = in_place_of(previous, call)  # type: ignore[method-assign]
    for kind in _WRAPPERS:
        _prepare_before_wrapping(parts, kind)


def _enter(stack: contextlib.ExitStack, parts: Parts, around: Iterable[Change], root: torch.nn.Module) -> None:
    for change in around:
        if not change.on:
            continue
        context = parts.attempt(change, change.forward, root)
        if context is not None:
            stack.enter_context(context)


def _prepare_before_wrapping(parts: Parts, kind: Any) -> None:
    original = kind.__init__

    def init(self: Any, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        if not parts.asleep:
            parts.prepare(module)
        original(self, module, *args, **kwargs)

    kind.__init__ = in_place_of(original, init)


def _looks(root: torch.nn.Module) -> list[Any]:
    """What a practice may change in a model: its modules and what they hold, the types and strides of its tensors."""
    modules = [(id(module), type(module), len(vars(module))) for module in root.modules()]
    return modules + [(id(t), t.dtype, _strides(t)) for t in (*root.parameters(), *root.buffers())]


def _strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """None of a sparse one, or of one whose size is not known yet."""
    try:
        return tensor.stride()
    except (RuntimeError, ValueError):
        return None


def _in_a_line(error: Exception) -> str:
    first, *_ = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _in_backward() -> bool:
    """Activation checkpointing calls blocks again from within a backward: they are no roots."""
    return torch._C._current_graph_task_id() != -1


def _has_parameters(module: torch.nn.Module) -> bool:
    return next(module.parameters(), None) is not None

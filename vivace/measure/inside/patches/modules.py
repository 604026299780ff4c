"""Forward passes: the outermost call of a module with parameters; and the switch between eval and train mode.

``Module.__call__`` itself is replaced, not hooked: no module object changes, modules made later are seen, and
torch.compile (which takes the ``__call__`` it finds when it is first imported for the original) traces models exactly
as before. Once the roots are known and nothing is compiled, ``narrow`` leaves the replacement on the roots' classes
only: the hundreds of inner modules of a network then cost nothing.
"""

from __future__ import annotations

import contextlib
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch.compiler import is_compiling

from vivace.measure.inside.comparing.first_steps import FirstSteps
from vivace.measure.inside.counting.flops import note_forward, uncounted
from vivace.measure.inside.facts.batches import describe_inputs, padding
from vivace.measure.inside.facts.sequence_layers import SequenceLayers
from vivace.measure.inside.groups import dimension_of
from vivace.measure.inside.patches import in_place_of
from vivace.measure.inside.places import user_place
from vivace.measure.inside.steps.recorder import Recorder

__all__ = ["Forwards", "install"]

_PADDINGS = 32  # batches that are looked at for padding


class Forwards:
    """The root modules seen so far, and the way to look at nothing else."""

    def __init__(self) -> None:
        self.roots: WeakSet[torch.nn.Module] = WeakSet()
        self.original = torch.nn.Module.__call__
        self.call: Any = None
        self.narrowed = False
        self.autocast: str | None = None  # the dtype of the autocast around the first forward
        self.watches_padding = True  # until the window opens
        self.paddings: list[tuple[Any, Any, int]] = []
        self.padding_share: float | None = None
        self.eval_with_grad: dict[str, dict[str, Any]] = {}  # forwards in eval mode that kept a graph, by line

    def meet(self, root: torch.nn.Module) -> None:
        """A root's first forward: note what surrounds it."""
        self.roots.add(root)
        device = next(root.parameters()).device.type
        if self.autocast in (None, "float32") and torch.is_autocast_enabled(device):  # float32 is no mixed precision
            self.autocast = str(torch.get_autocast_dtype(device)).removeprefix("torch.")

    def note_grad_in_eval(self) -> None:
        place = user_place(2) or {"file": "?", "line": 0, "code": ""}
        entry = self.eval_with_grad.setdefault(f"{place['file']}:{place['line']}", {**place, "forwards": 0})
        entry["forwards"] += 1

    def note_padding(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if len(self.paddings) >= _PADDINGS or (
            torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
        ):
            return
        if (found := uncounted(lambda inputs: padding(*inputs), (args, kwargs))) is not None:
            self.paddings.append(found)

    def settle_padding(self) -> None:
        """After the timed steps: this waits for the GPU."""
        filled, elsewhere, positions = (sum(float(part[n]) for part in self.paddings) for n in range(3))
        is_padding = filled > elsewhere  # a value that is as common before the end of a row is text
        self.padding_share = (filled / positions if is_padding else 0.0) if positions else None

    def narrow(self) -> None:
        """From here on watch only the classes that roots are of (unless someone else stands around us)."""
        if torch.nn.Module.__call__ is not self.call:
            return
        for kind in {type(root) for root in self.roots}:
            if kind.__call__ is self.call:
                kind.__call__ = self.call  # type: ignore[method-assign]
        torch.nn.Module.__call__ = self.original  # type: ignore[method-assign]
        self.narrowed = True

    def watch_again(self, module: torch.nn.Module) -> None:
        """A network that is first used in a validation, after ``narrow``: it is put into eval mode before."""
        kind = type(module)
        if self.narrowed and kind.__call__ is self.original and next(module.parameters(), None) is not None:
            kind.__call__ = self.call  # type: ignore[method-assign]


def install(recorder: Recorder, first_steps: FirstSteps) -> Forwards:
    forwards = Forwards()
    plain = forwards.original is getattr(torch.nn.Module, "_wrapped_call_impl", None)  # nobody stands around it yet
    layers = SequenceLayers()
    has_parameters: WeakKeyDictionary[torch.nn.Module, bool] = WeakKeyDictionary()

    def is_root(module: torch.nn.Module) -> bool:
        known = has_parameters.get(module)
        if known is None:
            known = has_parameters[module] = next(module.parameters(), None) is not None
            if known:
                with contextlib.suppress(Exception):
                    forwards.meet(module)
        return known

    def before_the_first_backward(module: torch.nn.Module, inner: Any, args: Any, kwargs: Any) -> Any:
        """Nothing is recorded yet; but the batch of the first step goes through here."""
        if first_steps.inside or not torch.is_grad_enabled() or next(module.parameters(), None) is None:
            return inner(*args, **kwargs)
        first_steps.inside = True
        first_steps.note_forward(module, args, kwargs)
        try:
            return inner(*args, **kwargs)
        finally:
            first_steps.inside = False

    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if recorder.inside and self._compiled_call_impl is None:  # an inner module: nothing but these lines is ours
            if layers.looking:
                layers.look(self, args)
            return self._call_impl(*args, **kwargs)
        inner = (self._compiled_call_impl or self._call_impl) if plain else MethodType(forwards.original, self)
        if not recorder.armed and first_steps.wanted and not is_compiling():
            return before_the_first_backward(self, inner, args, kwargs)
        if recorder.inside or is_compiling() or not recorder.here() or not is_root(self):
            return inner(*args, **kwargs)
        if first_steps.wanted and torch.is_grad_enabled():
            first_steps.note_forward(self, args, kwargs)
        recorder.mark("fwd+")
        recorder.inside = True
        layers.begin(self, args)
        extra = None
        try:
            output = inner(*args, **kwargs)
            samples, tokens, shape = describe_inputs(args, kwargs, layers.settle(self, args, kwargs))
            grad = torch.is_grad_enabled()
            syncs = self.__dict__.get("require_backward_grad_sync")  # None: not a DistributedDataParallel
            if syncs:
                recorder.exchanges_over = dimension_of(self.__dict__.get("process_group"))
            extra = {
                "root": id(self), "samples": samples, "tokens": tokens, "shape": shape, "grad": grad, "syncs": syncs
            }  # fmt: skip
            if grad:
                note_forward()
            if grad and recorder.evaluating:
                forwards.note_grad_in_eval()
            if grad and forwards.watches_padding:
                forwards.note_padding(args, kwargs)
            return output
        finally:
            recorder.inside = False
            recorder.mark("fwd-", extra)

    forwards.call = torch.nn.Module.__call__ = in_place_of(forwards.original, call)  # type: ignore[method-assign]
    _watch_mode_switches(recorder, forwards)
    return forwards


def _watch_mode_switches(recorder: Recorder, forwards: Forwards) -> None:
    """Validation begins when the last of the roots stops to train: one network of a GAN in eval mode, or a frozen
    backbone, is none."""
    original = torch.nn.Module.train
    roots = forwards.roots
    depth = 0  # a module puts those inside it into the same mode

    def train(self: torch.nn.Module, mode: bool = True) -> Any:
        if is_compiling() or not recorder.here():
            return original(self, mode)
        nonlocal depth
        if depth == 0 and not mode and self.training and self not in roots:
            forwards.watch_again(self)
        switches = self in roots and self.training != mode
        depth += 1
        try:
            result = original(self, mode)
        finally:
            depth -= 1
        if switches and recorder.evaluating == any(root.training for root in roots):
            recorder.evaluating = not recorder.evaluating
            recorder.mark("eval" if recorder.evaluating else "train")
        return result

    torch.nn.Module.train = in_place_of(original, train)  # type: ignore[method-assign]

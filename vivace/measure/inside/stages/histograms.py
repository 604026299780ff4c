"""Steps in which the magnitudes of activations and gradients are counted, where that is asked for.

One hook sees every module's output, and hooks on tensors see gradients. None returns anything, draws a random number or
leaves something in the graph: the training is the same, bit for bit.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from vivace.measure.inside.counting.flops import something_was_compiled
from vivace.measure.inside.counting.magnitudes import BINS, ZEROS, count_magnitudes, floating_tensors
from vivace.measure.inside.stages.stage import Stage
from vivace.measure.inside.training import Training
from vivace.protocol.histograms import Numbers, SeenHistogram, SeenHistograms

__all__ = ["Histograms"]

_NOT_FINITE = 1020  # the first bin of infinities and NaN
_WRAPPERS = ("module.", "_orig_mod.")  # of DistributedDataParallel and torch.compile


class Histograms(Stage):
    says = "counting magnitudes"

    def __init__(self, training: Training) -> None:
        super().__init__(training)
        self.seen: SeenHistograms | None = None
        self._counts: dict[tuple[str, Numbers], torch.Tensor] = {}
        self._names: dict[int, str] = {}
        self._notes: list[str] = []
        self._scale: torch.Tensor | None = None
        self._undo: contextlib.ExitStack | None = None

    @property
    def of(self) -> int:
        return self.training.request.histogram_steps

    def begin(self) -> bool:
        if self.of <= 0:
            return False
        self._undo = contextlib.ExitStack()
        self._undo.enter_context(self._scaler_watched())
        for layer, parameter in _trained_parameters(self.training.roots):
            handle = parameter.register_hook(self._gradient_hook(layer, Numbers.PARAMETER_GRADIENTS))
            self._undo.callback(handle.remove)
        if something_was_compiled():
            self._notes.append("no activations: hooks on the layers of a compiled model would change what is compiled")
            return True
        self._names = {id(module): name for name, module in _layers(self.training.roots)}
        handle = torch.nn.modules.module.register_module_forward_hook(self._after_forward)
        self._undo.callback(handle.remove)
        return True

    def step(self) -> bool:
        if self.steps < self.of:
            return False
        self.leave()
        return True

    def leave(self) -> None:
        """What was counted so far is kept; it may be the first thing here that waits for the GPU."""
        if self._undo is None:
            return
        undo, self._undo = self._undo, None
        undo.close()
        with contextlib.suppress(RuntimeError):
            self.seen = self._told()

    def _after_forward(self, module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        layer = self._names.get(id(module))
        in_training = torch.is_grad_enabled() and threading.get_ident() == self.training.recorder.thread
        if layer is None or not in_training or _capturing():
            return
        for tensor in floating_tensors(output):
            self._count(layer, Numbers.ACTIVATIONS, tensor)
            if tensor.requires_grad:
                tensor.register_hook(self._gradient_hook(layer, Numbers.ACTIVATION_GRADIENTS))

    def _gradient_hook(self, layer: str, numbers: Numbers) -> Any:
        def hook(gradient: torch.Tensor) -> None:
            if self._undo is not None and not _capturing():
                for tensor in floating_tensors(gradient):
                    self._count(layer, numbers, tensor)

        return hook

    def _count(self, layer: str, numbers: Numbers, tensor: torch.Tensor) -> None:
        try:
            counts = count_magnitudes(_local(tensor))
            known = self._counts.get((layer, numbers))
            self._counts[layer, numbers] = counts if known is None else known.add_(counts.to(known.device))
        except Exception as error:  # no room on the GPU, a kind of tensor that has no bits: the training goes on
            self._notes.append(f"{numbers} of {layer} not counted: {type(error).__name__}")

    @contextlib.contextmanager
    def _scaler_watched(self) -> Iterator[None]:
        """Keeps the factor of the last loss that a GradScaler scaled."""
        original = torch.amp.GradScaler.scale

        def scale(scaler: Any, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            factor = getattr(scaler, "_scale", None)
            self._scale = factor.detach().clone() if isinstance(factor, torch.Tensor) else None
            return scaled

        torch.amp.GradScaler.scale = scale  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            torch.amp.GradScaler.scale = original  # type: ignore[method-assign]

    def _told(self) -> SeenHistograms:
        keys = list(self._counts)
        rows = torch.stack([self._counts[key].cpu() for key in keys]).tolist() if keys else []
        layers = [_histogram(layer, numbers, row) for (layer, numbers), row in zip(keys, rows)]
        scale = float(self._scale) if self._scale is not None else None
        if not keys:
            self._notes.append("nothing counted: no hook was called (a CUDA graph replays kernels only)")
        return SeenHistograms(self.steps, scale, layers, list(dict.fromkeys(self._notes)))


def _histogram(layer: str, numbers: Numbers, row: list[int]) -> SeenHistogram:
    finite, not_finite = row[:_NOT_FINITE], sum(row[_NOT_FINITE:BINS])
    filled = [place for place, count in enumerate(finite) if count]
    first, end = (filled[0], filled[-1] + 1) if filled else (0, 0)
    return SeenHistogram(layer, numbers, row[ZEROS], not_finite, first, finite[first:end])


def _layers(roots: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules that compute: those without parts, and those with parameters of their own (as attention has)."""
    several = len(roots) > 1
    for root in roots:
        for name, module in root.named_modules():
            is_leaf = next(module.children(), None) is None
            if is_leaf or next(module.parameters(recurse=False), None) is not None:
                yield _layer_name(root, name, several), module


def _trained_parameters(roots: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
    several = len(roots) > 1
    for root in roots:
        for name, parameter in root.named_parameters():
            if parameter.requires_grad and parameter.is_leaf:
                yield _layer_name(root, name.rpartition(".")[0], several), parameter


def _layer_name(root: torch.nn.Module, name: str, several: bool) -> str:
    for wrapper in _WRAPPERS:
        name = f"{name}.".replace(wrapper, "").rstrip(".") if name.startswith(wrapper[:-1]) else name
    kind = type(root).__name__
    return (f"{kind}.{name}" if several else name) if name else kind


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor that is spread over ranks."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _capturing() -> bool:
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()

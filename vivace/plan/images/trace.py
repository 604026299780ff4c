"""Any PyTorch model as a list of operations, traced forward and backward on the meta device (no memory, no
GPU).

Imports torch lazily, so that planning a transformer by its sizes does not. Called by ``image_job.py`` for
convolutional networks, for ``file.py:function`` and for timm or torchvision models.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vivace.errors import UserError
from vivace.hardware.torch_needed import need_torch

__all__ = ["Operation", "TracedModel", "load_function", "trace_model"]


@dataclass(frozen=True)
class Operation:
    """One kernel: a product (M, N, K and a batch) or a pass over memory. ``backward`` operations come
    after the loss.
    """

    kind: str
    """``gemm``, ``conv``, ``depthwise``, ``norm`` or ``stream``."""
    backward: bool
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 1
    moved_bytes: float = 0.0

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k * self.batch


@dataclass(frozen=True)
class TracedModel:
    """What the planner needs of a model at one batch size."""

    name: str
    batch: int
    parameters: int
    operations: tuple[Operation, ...]
    saved_bytes: float
    """Activations kept for the backward pass."""
    largest_bytes: float
    """The largest single tensor, of which the backward pass holds a few at once."""
    input_bytes: float = 0.0
    """The images as the loader hands them over: fp32, beside their 16-bit copy among the saved."""

    @property
    def flops(self) -> float:
        """Forward and backward of the whole batch (products and convolutions only)."""
        return sum(operation.flops for operation in self.operations)


def load_function(spec: str) -> Callable[[], Any]:
    """``file.py:function`` as a callable that makes the model."""
    need_torch("planning an image model")
    path, _, name = spec.partition(":")
    if not Path(path).is_file():
        raise UserError(f"{path} does not exist", hint="write path/to/file.py:function")
    loader = importlib.util.spec_from_file_location("vivace_planned_model", path)
    if loader is None or loader.loader is None:
        raise UserError(f"{path} is not a Python file", hint="write path/to/file.py:function")
    module = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(module)
    function = getattr(module, name or "model", None)
    if not callable(function):
        raise UserError(f"{path} has no function {name!r}", hint="the function takes no argument and returns the model")
    return function


def trace_model(
    make: Callable[[], Any], name: str, batch: int, image_size: int, element_bytes: int = 2, channels: int = 3
) -> TracedModel:
    """Build the model on the meta device and run one forward and backward of ``batch`` images there."""
    need_torch("planning an image model")
    import torch

    dtype = torch.float32 if element_bytes == 4 else torch.bfloat16
    with torch.device("meta"):
        model = make()
        model = model.to(dtype)
        images = torch.empty(batch, channels, image_size, image_size, dtype=dtype)
    model.train()
    recorder, saved = _recorder(), _SavedBytes()
    try:
        with recorder, torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor):
            output = model(images)
            if not isinstance(output, torch.Tensor):
                output = next(iter(output.values())) if hasattr(output, "values") else output[0]
            recorder.backward = True
            output.sum().backward()
    except (NotImplementedError, RuntimeError, TypeError) as error:
        raise UserError(f"{name} cannot be traced on the meta device: {str(error).splitlines()[0]}") from None
    parameters = list(model.parameters())
    count = sum(parameter.numel() for parameter in parameters)
    weights = {_key(parameter.untyped_storage()) for parameter in parameters}
    kept = sum(size for key, (_, size) in saved.seen.items() if key not in weights)
    handed = 4.0 * images.numel() if element_bytes < 4 else 0.0
    return TracedModel(name, batch, count, tuple(recorder.operations), kept, recorder.largest, handed)


class _SavedBytes:
    """Sizes of what autograd saves, each storage once (the storage is kept alive so that its id stays
    unique).
    """

    def __init__(self) -> None:
        self.seen: dict[int, tuple[Any, float]] = {}

    def pack(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        self.seen[_key(storage)] = (storage, float(storage.nbytes()))
        return tensor


def _key(storage: Any) -> int:
    """The same for every Python view of one storage (``id`` is not: a new wrapper is made at each call)."""
    return int(storage._cdata)


def _recorder() -> Any:
    """A dispatch mode that notes every operation (a class made here, because its base needs torch)."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.operations: list[Operation] = []
            self.backward = False
            self.largest = 0.0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            outputs = [t for t in _flat(out) if isinstance(t, torch.Tensor)]
            inputs = [t for t in _flat(args) if isinstance(t, torch.Tensor)]
            self.largest = max([self.largest, *(float(t.numel() * t.element_size()) for t in outputs)])
            self.operations.extend(_describe(func.overloadpacket.__name__, args, inputs, outputs, self.backward))
            return out

    return Recorder()


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _flat(item)]
    return [value]


_FREE = {
    "view",
    "_unsafe_view",
    "t",
    "transpose",
    "permute",
    "expand",
    "detach",
    "alias",
    "slice",
    "select",
    "unsqueeze",
    "squeeze",
    "reshape",
    "as_strided",
    "split",
    "split_with_sizes",
    "chunk",
    "unbind",
    "empty",
    "empty_like",
    "new_empty",
    "new_empty_strided",
    "ones_like",
    "narrow",
    "_reshape_alias",
    "flatten",
    "is_same_size",
}


def _bytes(tensors: list[Any]) -> float:
    return float(sum(t.numel() * t.element_size() for t in tensors))


def _describe(name: str, args: Any, inputs: list[Any], outputs: list[Any], backward: bool) -> list[Operation]:
    if name in _FREE or not outputs:
        return []
    moved = _bytes(inputs) + _bytes(outputs)
    if name in ("mm", "addmm", "bmm", "baddbmm", "linear"):
        return [_product(name, inputs, outputs[0], moved, backward)]
    if name in ("convolution", "cudnn_convolution", "_convolution"):
        return [_convolution(inputs[0], inputs[1], outputs[0], moved, backward)]
    if name == "convolution_backward":
        return _convolution_backward(args, outputs, moved)
    if "attention" in name:
        return _attention(inputs, moved, backward)
    if "batch_norm" in name or "layer_norm" in name or "group_norm" in name:
        return [Operation("norm", backward, moved_bytes=moved)]
    return [Operation("stream", backward, moved_bytes=moved)]


def _product(name: str, inputs: list[Any], out: Any, moved: float, backward: bool) -> Operation:
    left = inputs[1] if name in ("addmm", "baddbmm") else inputs[0]
    batch = out.shape[0] if out.dim() == 3 else 1
    return Operation("gemm", backward, out.shape[-2], out.shape[-1], left.shape[-1], batch, moved)


def _convolution(image: Any, weight: Any, out: Any, moved: float, backward: bool) -> Operation:
    groups = image.shape[1] // weight.shape[1]
    rows = out.shape[0] * math.prod(out.shape[2:])
    width, depth = weight.shape[0] // groups, math.prod(weight.shape[1:])
    kind = "depthwise" if groups > 1 and weight.shape[1] <= 2 else "conv"
    return Operation(kind, backward, rows, width, depth, groups, moved)


def _convolution_backward(args: Any, outputs: list[Any], moved: float) -> list[Operation]:
    gradient, image, weight = args[0], args[1], args[2]
    forward = _convolution(image, weight, gradient, 0.0, True)
    masks = args[-1]
    found = []
    if masks[0]:  # gradient of the image: the roles of width and depth change
        found.append(
            Operation(
                forward.kind,
                True,
                forward.m,
                forward.k,
                forward.n,
                forward.batch,
                _bytes([gradient, weight, image]),
            )
        )
    if masks[1]:  # gradient of the weights: the sum runs over batch and positions
        found.append(
            Operation(
                forward.kind,
                True,
                forward.n,
                forward.k,
                forward.m,
                forward.batch,
                _bytes([gradient, image, weight]),
            )
        )
    return found


def _attention(inputs: list[Any], moved: float, backward: bool) -> list[Operation]:
    query = inputs[0]
    if query.dim() < 4:
        return [Operation("stream", backward, moved_bytes=moved)]
    batch, heads, length, width = query.shape[-4:]
    once = Operation("gemm", backward, length, length, width, batch * heads, moved)
    return [once] * (5 if backward else 2)

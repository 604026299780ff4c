"""Pure bf16: weights, gradients and optimizer state in 16 bits. Half the memory; another optimisation problem."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from vivace.practices.engine.autocasts import StandIn, dtype_around
from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import capability, memory_limit, optimizer_bytes
from vivace.practices.engine.tensors import map_tensors
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_LARGE_SHARE = 0.3  # of the peak, that weights, gradients and optimizer state must take to be worth halving


class PureBf16(Change):
    """The parameters stay the same objects, so optimizers made before keep them. Batch norms stay in fp32."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.cast: WeakSet[torch.nn.Module] = WeakSet()
        self.known: WeakSet[torch.optim.Optimizer] = WeakSet()

    def model(self, root: torch.nn.Module) -> None:
        device = next(root.parameters()).device
        if dtype_around(device.type) not in (None, torch.float32):
            raise NotApplicable("the script already runs this model under autocast")
        if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
            raise NotApplicable("this GPU has no bf16 units")
        if all(p.dtype is not torch.float32 for p in root.parameters()):
            raise NotApplicable(f"{type(root).__name__} has no fp32 weights")
        for module in root.modules():
            if not isinstance(module, torch.nn.modules.batchnorm._NormBase):
                _cast_own_tensors(module)
        self.cast.add(root)
        self.applied(f"weights, gradients and optimizer of {type(root).__name__}")

    def forward(self, root: torch.nn.Module) -> AbstractContextManager[Any] | None:
        """Autocast to float32 would cast the weights back for every product."""
        device = next(root.parameters()).device.type
        if not self._is_cast(root) or dtype_around(device) is not torch.float32:
            return None
        return StandIn(device, torch.bfloat16, enabled=False)

    def inputs(self, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if not self._is_cast(root):
            return args, kwargs
        return map_tensors(args, _to_bf16), map_tensors(kwargs, _to_bf16)

    def outputs(self, value: Any) -> Any:
        if self.done is None:
            return value
        return map_tensors(value, lambda t: t.float() if t.dtype is torch.bfloat16 else t)

    def _is_cast(self, root: torch.nn.Module) -> bool:
        return root in self.cast or getattr(root, "module", None) in self.cast

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """State that was loaded from an fp32 checkpoint before the weights were cast."""
        if self.done is None or optimizer in self.known:
            return
        self.known.add(optimizer)
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and value.is_floating_point() and name != "step":
                    state[name] = value.to(parameter.dtype)


def _cast_own_tensors(module: torch.nn.Module) -> None:
    for parameter in module.parameters(recurse=False):
        parameter.data = _to_bf16(parameter.data)
        if parameter.grad is not None:
            parameter.grad = _to_bf16(parameter.grad)
    for name, buffer in module.named_buffers(recurse=False):
        module._buffers[name] = _to_bf16(buffer)


def _to_bf16(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.bfloat16) if tensor.dtype is torch.float32 else tensor


def find(m: Measurement) -> Found | None:
    """Only where memory is the limit and most of it does not depend on the batch."""
    limit = memory_limit(m)
    device = m.memory.device
    if limit is None or device is None or capability(m) < (8, 0) or not m.structure.parameter_dtypes.get("float32"):
        return None
    held_gib = optimizer_bytes(m) / 2**30
    if held_gib < _LARGE_SHARE * device.allocated_peak_gib:
        return None
    return Found(
        exposed_ms=0.0,  # it makes room; whether it is faster than bf16 autocast only a trial tells
        evidence={"weights_gradients_optimizer_gib": round(held_gib, 2), "total_gib": round(device.total_gib, 2)},
        says=f"{limit}; weights, gradients and optimizer take {held_gib:.1f} GiB in fp32 and half of it in bf16",
    )


PRACTICE = Practice(
    name="pure_bf16",
    title="pure bf16 training",
    family="precision",
    risk="algorithmic",
    source="DLO-JZ, precision: full BF16 keeps weights, gradients and optimizer in BF16.",
    why=(
        "16 bytes a weight become 8 with AdamW, and no casts are left. But bf16 has 8 bits of precision: an update "
        "smaller than 1/256 of a weight is lost, and sums of small updates with it. Loss curves may differ; compare "
        "them. Batch norms stay in fp32. Checkpoints load both ways, rounded."
    ),
    by_hand=(
        "model = model.to(torch.bfloat16)   # before the optimizer is made\n"
        "output = model(inputs.to(torch.bfloat16)).float()"
    ),
    number_format="bf16",
    rounds_weights=True,
    shows_late=True,
    find=find,
    change=PureBf16,
    excludes=("bf16", "fp16"),
    order=40,
)

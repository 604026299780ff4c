"""fp16 autocast with loss scaling: for Volta and Turing, whose tensor cores know no bf16."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from vivace.practices.bf16 import Autocast, likely_by_halving, saved_by_halving
from vivace.practices.engine.change import NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import MEMORY_BOUND, PRODUCTS, arithmetic_share, capability, role_ms, step_ms
from vivace.practices.engine.tensors import map_tensors, tensors_to_optimize
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.05
_FIRST_SCALE = 2.0**16  # as torch.amp.GradScaler
_CLEAN_STEPS = 2000


class Fp16(Autocast):
    """The loss is multiplied by a scale; hooks on the parameters divide it out again, so accumulation, clipping and
    DDP see true gradients. A step with a gradient that is not finite is left out: its gradients become None."""

    @property
    def dtype(self) -> torch.dtype:
        return torch.float16

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.scale = _FIRST_SCALE
        self.clean_steps = 0
        self.in_scaled_backward = False
        self.script_scales = False
        self.watching = False

    @functools.cached_property
    def hooked(self) -> Any:
        from torch.utils.weak import WeakIdKeyDictionary

        return WeakIdKeyDictionary()

    def flags(self) -> None:
        if not self.watching:
            self.watching = True
            _watch_for_a_scaler(self)

    def optimizer(self, kind: type, arguments: dict[str, Any]) -> None:
        """Also parameters of no module: a temperature, a learned token."""
        for tensor in tensors_to_optimize(arguments["params"]):
            self._unscale_gradients_of(tensor)

    def model(self, root: torch.nn.Module) -> None:
        if any(getattr(p, "device_mesh", None) is not None for p in root.parameters()):
            raise NotApplicable("parameters are sharded: ranks would have to agree on every step that is left out")
        for parameter in root.parameters():
            self._unscale_gradients_of(parameter)

    def inputs(self, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Inputs that want a gradient (adversarial examples) must get a true one."""
        map_tensors((args, kwargs), lambda t: self._unscale_gradients_of(t) if t.is_leaf else t)
        return args, kwargs

    def forward(self, root: torch.nn.Module) -> AbstractContextManager[Any] | None:
        self.around_this_call = False
        if self.script_scales:
            raise NotApplicable("the script scales its losses itself (GradScaler)")
        if self.refused is not None:
            return None
        return super().forward(root)

    def loss(self, loss: torch.Tensor) -> torch.Tensor:
        if self.done is None or self.refused is not None or not loss.requires_grad:
            return loss
        scaled = loss * self.scale
        scaled.register_hook(self._backward_begins)
        return scaled

    def _backward_begins(self, _gradient: torch.Tensor) -> None:
        """Only what this backward computes is scaled; gradients by torch.autograd.grad are not."""
        self.in_scaled_backward = True
        torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)

    def _backward_ends(self) -> None:
        self.in_scaled_backward = False

    def after_backward(self) -> None:
        """Also after one that raised, whose end the engine does not tell."""
        self._backward_ends()

    def _unscale_gradients_of(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.requires_grad and tensor not in self.hooked:
            self.hooked[tensor] = True
            tensor.register_hook(lambda g: g / self.scale if self.in_scaled_backward else g)
        return tensor

    def no_optimizer(self) -> None:
        self.done = None
        raise NotApplicable(
            "the script updates its parameters by hand: nothing can leave out a step whose gradients overflow in fp16"
        )

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.done is None or self.refused is not None:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for parameter in parameters:
            if parameter.grad is not None and parameter not in self.hooked:  # of no module, in an optimizer not torch's
                parameter.grad.div_(self.scale)
                self._unscale_gradients_of(parameter)
        gradients = [p.grad for p in parameters if p.grad is not None]
        if not gradients or _all_finite(gradients):
            self._count_a_clean_step()
            return
        for parameter in parameters:
            parameter.grad = None
        self.scale, self.clean_steps = max(1.0, self.scale / 2), 0

    def _count_a_clean_step(self) -> None:
        self.clean_steps += 1
        if self.clean_steps == _CLEAN_STEPS:
            self.scale, self.clean_steps = self.scale * 2, 0


def _all_finite(gradients: list[torch.Tensor]) -> bool:
    """Waits for the GPU once, as GradScaler.step does."""
    dense = [g.coalesce().values() if g.is_sparse else g for g in gradients]
    filled = [g for g in dense if g.numel()]  # of none there is no largest element
    from vivace.measure.inside.norms import total_norm  # here: it imports torch

    return bool(total_norm(filled, float("inf")).isfinite())


def _watch_for_a_scaler(change: Fp16) -> None:
    original = torch.amp.GradScaler.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        change.script_scales = change.script_scales or self.is_enabled()

    torch.amp.GradScaler.__init__ = init  # type: ignore[method-assign]


def find(m: Measurement) -> Found | None:
    share = arithmetic_share(m, "fp32")
    if not (7, 0) <= capability(m) < (8, 0) or m.structure.mixed_precision or share < 0.5:
        return None
    saved = saved_by_halving(m, "fp16")
    if saved < _SMALLEST_SHARE * step_ms(m):
        return None
    return Found(
        exposed_ms=saved,
        likely=likely_by_halving(m, "fp16"),
        evidence={
            "fp32_share_of_flops": round(share, 3),
            "products_ms": round(role_ms(m, *PRODUCTS), 3),
            "memory_bound_ms": round(role_ms(m, *MEMORY_BOUND), 3),
        },
        says=f"{share:.0%} of the arithmetic runs in fp32, without tensor cores; fp16 saves at most {saved:.1f} ms",
    )


PRACTICE = Practice(
    name="fp16",
    title="fp16 mixed precision with loss scaling",
    family="precision",
    risk="rounding",
    source="R3; DLO-JZ: AMP is necessary on V100 to use its tensor cores. Micikevicius et al., 2017 (mixed precision).",
    why=(
        "Volta's tensor cores multiply fp16 at eight times the rate of fp32. fp16 ends at 65504 and loses what is "
        "below 6e-8, so the loss is multiplied by a large scale before backward and gradients are divided by it "
        "after. A step with an infinite or undefined gradient is left out and the scale halved; after 2000 good steps "
        "it doubles. On Ampere and newer take bf16, which needs none of this. With clip_grad_value_, which turns "
        "infinite gradients into large ones before anyone can see them, use a GradScaler in the script instead."
    ),
    by_hand=(
        'scaler = torch.amp.GradScaler("cuda")\n'
        'with torch.autocast("cuda", dtype=torch.float16):\n'
        "    loss = criterion(model(inputs), targets)\n"
        "scaler.scale(loss).backward()\n"
        "scaler.step(optimizer)  # leaves the step out when a gradient is not finite\n"
        "scaler.update()"
    ),
    number_format="fp16",
    find=find,
    change=Fp16,
    excludes=("bf16", "pure_bf16", "fp8"),
    order=40,
)

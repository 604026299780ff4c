"""LARS: SGD whose step for each layer is a fixed share of the layer's weights. LARC: the same, but never above ``lr``.

You et al., "Large Batch Training of Convolutional Networks", 2017::

    optimizer = Lars(model.parameters(), lr=3.2, momentum=0.9, weight_decay=1e-4)
    optimizer = Lars(model.parameters(), lr=0.4, momentum=0.9, weight_decay=1e-4, clip=True)     # LARC

Biases and norms (one dimension) get the plain SGD step, without weight decay, as in the large-batch recipes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

__all__ = ["Lars"]


class Lars(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: float = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        clip: bool = False,
        nesterov: bool = False,
    ) -> None:
        if lr < 0 or momentum < 0 or weight_decay < 0 or trust <= 0:
            raise ValueError(
                f"impossible for Lars: lr={lr}, momentum={momentum}, weight_decay={weight_decay}, trust={trust}"
            )
        options = {"momentum": momentum, "weight_decay": weight_decay, "trust": trust, "clip": clip}
        super().__init__(params, {"lr": lr, "nesterov": nesterov, **options})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self._step_group(group, parameters)
        return loss

    def _step_group(self, group: dict[str, Any], parameters: list[torch.Tensor]) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if any(gradient.is_sparse for gradient in gradients):
            raise RuntimeError("Lars does not take sparse gradients")
        ratios = _ratios(group, parameters, gradients)
        updates = list(torch._foreach_clone(gradients)) if hasattr(torch, "_foreach_clone") else _clones(gradients)
        cut = [(update, weight) for update, weight in zip(updates, parameters) if weight.dim() > 1]
        if cut and group["weight_decay"]:
            torch._foreach_add_([each for each, _ in cut], [each for _, each in cut], alpha=group["weight_decay"])
        torch._foreach_mul_(updates, ratios)
        if group["momentum"]:
            updates = self._with_momentum(group, parameters, updates)
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def _with_momentum(
        self, group: dict[str, Any], parameters: list[torch.Tensor], updates: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        for parameter in parameters:
            state = self.state[parameter]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        buffers = [self.state[parameter]["momentum"] for parameter in parameters]
        torch._foreach_mul_(buffers, group["momentum"])
        torch._foreach_add_(buffers, updates)
        if not group["nesterov"]:
            return buffers
        torch._foreach_add_(updates, buffers, alpha=group["momentum"])
        return updates


def _clones(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in tensors]


def _ratios(group: dict[str, Any], parameters: list[torch.Tensor], gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """``trust`` × size of the weights over size of the gradient and the decay; 1 for vectors, and where one is zero."""
    found = []
    for parameter, weight, gradient in zip(parameters, torch._foreach_norm(parameters), torch._foreach_norm(gradients)):
        one = torch.ones_like(weight)
        ratio = group["trust"] * weight / (gradient + group["weight_decay"] * weight)
        if group["clip"] and group["lr"] > 0:
            ratio = torch.clamp(ratio / group["lr"], max=1.0)
        adapted = torch.where((weight > 0) & (gradient > 0), ratio, one)
        found.append(adapted if parameter.dim() > 1 else one)
    return found

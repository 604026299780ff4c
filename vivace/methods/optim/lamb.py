"""LAMB: AdamW whose step for each layer is as large, compared with the layer's weights, as the learning rate says.

You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2019, algorithm 2::

    optimizer = Lamb(model.parameters(), lr=0.02, weight_decay=0.01)

Biases and norms (one dimension) get the plain AdamW step, as in the authors' code, which leaves them out by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

__all__ = ["Lamb"]


class Lamb(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        if lr < 0 or eps < 0 or weight_decay < 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"impossible for Lamb: lr={lr}, betas={betas}, eps={eps}, weight_decay={weight_decay}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

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
            raise RuntimeError("Lamb does not take sparse gradients")
        group["step"] = step = group.get("step", 0) + 1
        first, second = group["betas"]
        means = [self._state(parameter, "mean") for parameter in parameters]
        squares = [self._state(parameter, "square") for parameter in parameters]
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)

        updates = torch._foreach_div(means, 1 - first**step)
        sizes = torch._foreach_div(squares, 1 - second**step)
        torch._foreach_sqrt_(sizes)
        torch._foreach_add_(sizes, group["eps"])
        torch._foreach_div_(updates, sizes)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        torch._foreach_mul_(updates, _ratios(parameters, updates))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def _state(self, parameter: torch.Tensor, name: str) -> torch.Tensor:
        state = self.state[parameter]
        if name not in state:
            state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state[name]


def _ratios(parameters: list[torch.Tensor], updates: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Size of the weights over size of the update; 1 for vectors, and where either is zero."""
    found = []
    for parameter, weight, update in zip(parameters, torch._foreach_norm(parameters), torch._foreach_norm(updates)):
        one = torch.ones_like(weight)
        adapted = torch.where((weight > 0) & (update > 0), weight / update, one)
        found.append(adapted if parameter.dim() > 1 else one)
    return found

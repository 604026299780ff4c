"""Lion: the sign of a moving average. One state instead of two, and every weight moves by the same amount.

Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, algorithm 2::

    optimizer = Lion(model.parameters(), lr=1e-4, weight_decay=1.0)

The authors take a learning rate 3 to 10 times smaller than AdamW's, and a weight decay as many times larger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

__all__ = ["Lion"]


class Lion(Optimizer):
    def __init__(
        self, params: Any, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0
    ) -> None:
        if lr < 0 or weight_decay < 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"impossible for Lion: lr={lr}, betas={betas}, weight_decay={weight_decay}")
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

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
            raise RuntimeError("Lion does not take sparse gradients")
        for parameter in parameters:
            state = self.state[parameter]
            if "mean" not in state:
                state["mean"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        means = [self.state[parameter]["mean"] for parameter in parameters]
        first, second = group["betas"]
        directions = torch._foreach_lerp(means, gradients, 1 - first)
        torch._foreach_sign_(directions)
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(parameters, directions, alpha=-group["lr"])
        torch._foreach_lerp_(means, gradients, 1 - second)

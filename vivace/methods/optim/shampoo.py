"""Shampoo: each gradient is multiplied from every side by what its rows and columns have in common.

Gupta et al., "Shampoo: Preconditioned Stochastic Tensor Optimization", 2018, with moving averages and with the size of
AdamW's step ("grafting", Anil et al., 2020), so that a learning rate that suits AdamW suits Shampoo::

    optimizer = Shampoo(model.parameters(), lr=1e-3, weight_decay=0.01, every=20)

Roots of matrices are slow, so they are taken every few steps only. A side longer than ``largest`` is left alone, and so
are biases and norms: those get AdamW's step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

__all__ = ["Shampoo"]


class Shampoo(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        every: int = 20,
        largest: int = 1024,
        root_eps: float = 1e-6,
    ) -> None:
        if lr < 0 or weight_decay < 0 or every < 1 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                f"impossible for Shampoo: lr={lr}, betas={betas}, weight_decay={weight_decay}, every={every}"
            )
        options = {"weight_decay": weight_decay, "every": every, "largest": largest, "root_eps": root_eps}
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, **options})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step_one(group, parameter, parameter.grad)
        return loss

    def _step_one(self, group: dict[str, Any], parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        if gradient.is_sparse:
            raise RuntimeError("Shampoo does not take sparse gradients")
        state = self.state[parameter]
        if not state:
            self._begin(group, parameter, state)
        state["step"] += 1
        first, second = group["betas"]
        mean, square, step = state["mean"], state["square"], state["step"]
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        corrected = mean / (1 - first**step)
        adam = corrected / ((square / (1 - second**step)).sqrt_().add_(group["eps"]))
        update = adam
        if any(f"statistics_{side}" in state for side in range(parameter.dim())):
            self._gather(group, state, gradient)
            update = _precondition(corrected, state)
            update = update * (adam.norm() / update.norm().clamp(min=1e-30))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(update, alpha=-group["lr"])

    def _begin(self, group: dict[str, Any], parameter: torch.Tensor, state: dict[str, Any]) -> None:
        state["step"] = 0
        state["mean"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["square"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        if parameter.dim() < 2:
            return
        for side, length in enumerate(parameter.shape):
            if 1 < length <= group["largest"]:
                wide = torch.promote_types(parameter.dtype, torch.float32)
                state[f"statistics_{side}"] = torch.zeros(length, length, dtype=wide, device=parameter.device)
                state[f"root_{side}"] = torch.eye(length, dtype=wide, device=parameter.device)

    def _gather(self, group: dict[str, Any], state: dict[str, Any], gradient: torch.Tensor) -> None:
        """What rows and columns have in common, and now and then its root."""
        second, step = group["betas"][1], state["step"]
        sides = [side for side in range(gradient.dim()) if f"statistics_{side}" in state]
        for side in sides:
            statistics = state[f"statistics_{side}"]
            rows = gradient.transpose(0, side).flatten(1).to(statistics.dtype)
            statistics.mul_(second).addmm_(rows, rows.T, alpha=1 - second)
            if step == 1 or step % group["every"] == 0:
                power = -1 / (2 * len(sides))
                state[f"root_{side}"] = _power(statistics / (1 - second**step), power, group["root_eps"])


def _power(matrix: torch.Tensor, power: float, eps: float) -> torch.Tensor:
    """Of a symmetric matrix without negative eigenvalues. ``eps`` is relative to the largest."""
    values, vectors = torch.linalg.eigh(matrix)
    values = values.clamp(min=0) + eps * values.max().clamp(min=1e-30)
    return vectors @ torch.diag(values**power) @ vectors.T


def _precondition(gradient: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
    """The root of each side, multiplied from that side."""
    result = gradient
    for side in range(gradient.dim()):
        root = state.get(f"root_{side}")
        if root is not None:
            moved = result.transpose(0, side)
            result = (root.to(result.dtype) @ moved.flatten(1)).view(moved.shape).transpose(0, side)
    return result

"""Muon for the matrices of hidden layers, AdamW for all the rest, in one optimizer.

Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024: the momentum of a matrix is replaced by
the nearest matrix with orthogonal rows or columns (five Newton-Schulz steps). torch.optim.Muon takes matrices alone; a
script has biases, norms and embeddings as well. Convolutions count as matrices of their outputs by the rest::

    optimizer = Muon(model.parameters(), lr=1e-3, weight_decay=0.1)

The step is scaled so that a learning rate and weight decay that suit AdamW suit Muon ("match_rms_adamw", Liu et al.,
2025). Embeddings and the last layer belong to AdamW: put them into a parameter group with ``matrices=False``, or name
them with ``leave_to_adamw``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer

__all__ = ["Muon", "orthogonal"]

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan et al.: of the polynomial that pulls singular values towards 1


def orthogonal(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """The matrix with its singular values pulled to about 1. In bf16, as torch's own."""
    a, b, c = _COEFFICIENTS
    x = matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class Muon(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        matrices: bool = True,
    ) -> None:
        if lr < 0 or weight_decay < 0 or not 0 <= momentum < 1 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                f"impossible for Muon: lr={lr}, momentum={momentum}, weight_decay={weight_decay}, betas={betas}"
            )
        options = {"weight_decay": weight_decay, "betas": betas, "eps": eps, "matrices": matrices}
        super().__init__(params, {"lr": lr, "momentum": momentum, **options})
        self._left_to_adamw: set[int] = set()

    def leave_to_adamw(self, parameters: Iterable[torch.Tensor]) -> None:
        """Parameters of two and more dimensions that are no matrices of hidden layers. Say it again after a load."""
        self._left_to_adamw.update(id(parameter) for parameter in parameters)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if any(parameter.grad.is_sparse for parameter in parameters):
                raise RuntimeError("Muon does not take sparse gradients")
            matrices = [each for each in parameters if group["matrices"] and self._is_matrix(each)]
            vectors = [each for each in parameters if not (group["matrices"] and self._is_matrix(each))]
            for matrix in matrices:
                self._step_matrix(group, matrix)
            if vectors:
                self._step_vectors(group, vectors)
        return loss

    def _is_matrix(self, parameter: torch.Tensor) -> bool:
        return parameter.dim() > 1 and id(parameter) not in self._left_to_adamw

    def _step_matrix(self, group: dict[str, Any], parameter: torch.Tensor) -> None:
        momentum = self._state(parameter, "momentum")
        gradient = parameter.grad
        assert gradient is not None
        momentum.lerp_(gradient, 1 - group["momentum"])
        update = gradient.lerp(momentum, group["momentum"]).flatten(1)  # Nesterov
        direction = orthogonal(update).to(parameter.dtype)
        size = 0.2 * math.sqrt(max(update.shape))  # Liu et al.: the size of AdamW's steps
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(direction.view_as(parameter), alpha=-group["lr"] * size)

    def _step_vectors(self, group: dict[str, Any], parameters: list[torch.Tensor]) -> None:
        """AdamW."""
        group["step"] = step = group.get("step", 0) + 1
        first, second = group["betas"]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        means = [self._state(parameter, "mean") for parameter in parameters]
        squares = [self._state(parameter, "square") for parameter in parameters]
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
        sizes = torch._foreach_div(squares, 1 - second**step)
        torch._foreach_sqrt_(sizes)
        torch._foreach_add_(sizes, group["eps"])
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_addcdiv_(parameters, means, sizes, value=-group["lr"] / (1 - first**step))

    def _state(self, parameter: torch.Tensor, name: str) -> torch.Tensor:
        state = self.state[parameter]
        if name not in state:
            state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state[name]

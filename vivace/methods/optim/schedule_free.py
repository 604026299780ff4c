"""Schedule-free AdamW: an average of all steps in place of a falling learning rate. No schedule, no end to know.

Defazio et al., "The Road Less Scheduled", 2024, algorithm 1 with AdamW's step::

    optimizer = ScheduleFreeAdamW(model.parameters(), lr=2.5e-3, warmup_steps=1000)
    optimizer.train()       # before training steps
    optimizer.eval()        # before validation and saving: the weights are the average then

Gradients are taken between the average (x) and the plain iterate (z). While training the parameters hold that point, y.
Switch to ``eval()`` before you save, or the saved weights are not those that are validated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

__all__ = ["ScheduleFreeAdamW"]


class ScheduleFreeAdamW(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: float = 2.5e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        warmup_steps: int = 0,
    ) -> None:
        if lr < 0 or weight_decay < 0 or warmup_steps < 0 or not (0 < betas[0] < 1 and 0 <= betas[1] < 1):
            raise ValueError(
                f"impossible for ScheduleFreeAdamW: lr={lr}, betas={betas}, weight_decay={weight_decay}, "
                f"warmup_steps={warmup_steps}"
            )
        options = {"eps": eps, "weight_decay": weight_decay, "warmup_steps": warmup_steps}
        counters = {"step": 0, "weights": 0.0, "training": True}
        super().__init__(params, {"lr": lr, "betas": betas, **options, **counters})

    @torch.no_grad()
    def eval(self) -> None:
        """The parameters become the average."""
        for group in self.param_groups:
            if group["training"]:
                self._move(group, 1 - 1 / group["betas"][0])
                group["training"] = False

    @torch.no_grad()
    def train(self) -> None:
        """The parameters become the point at which gradients are taken."""
        for group in self.param_groups:
            if not group["training"]:
                self._move(group, 1 - group["betas"][0])
                group["training"] = True

    def _move(self, group: dict[str, Any], towards_z: float) -> None:
        for parameter in group["params"]:
            if "z" in self.state[parameter]:
                parameter.lerp_(self.state[parameter]["z"], towards_z)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        if not all(group["training"] for group in self.param_groups):
            raise RuntimeError("call optimizer.train() before a training step, and optimizer.eval() before validation")
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
        group["step"] = step = group["step"] + 1
        first, second = group["betas"]
        rate = group["lr"] * min(1.0, step / (group["warmup_steps"] or 1))
        weight = rate**2  # steps of the warm-up count less in the average
        group["weights"] += weight
        share = weight / group["weights"] if group["weights"] else 1.0
        for parameter in parameters:
            gradient = parameter.grad
            assert gradient is not None
            if gradient.is_sparse:
                raise RuntimeError("ScheduleFreeAdamW does not take sparse gradients")
            state = self.state[parameter]
            if "z" not in state:
                state["z"] = parameter.clone(memory_format=torch.preserve_format)
                state["square"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            z, square = state["z"], state["square"]
            square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
            update = gradient / (square / (1 - second**step)).sqrt_().add_(group["eps"])
            if group["weight_decay"]:
                update.add_(parameter, alpha=group["weight_decay"])
            # x moves by ``share`` towards the new z; the parameters hold y = first · x + (1 - first) · z.
            parameter.lerp_(z, share)
            parameter.add_(update, alpha=rate * (first * (1 - share) - 1))
            z.sub_(update, alpha=rate)

"""Gradient clipping: ``clip=1.0``. One bad batch cannot throw the weights far off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Practice, never_found

if TYPE_CHECKING:
    import torch

_DEFAULT_NORM = 1.0  # as GPT-3, LLaMA and most language models: Brown et al. 2020, appendix B


class Clip(Change):
    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.norm = _DEFAULT_NORM if argument is None else float(argument)
        if not 0 < self.norm < float("inf"):
            raise ValueError(f"{argument!r} is no norm")
        self.script_clips = False
        self.clipping = False

    def before_gradients_are_read(self) -> None:
        if not self.clipping:
            self.script_clips = True

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        import torch

        if self.script_clips and self.done is None:
            raise NotApplicable("the script clips or unscales its gradients itself")
        parameters = [each for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        self.clipping = True
        try:
            torch.nn.utils.clip_grad_norm_(parameters, self.norm)
        finally:
            self.clipping = False
        self.applied(f"gradients to a norm of at most {self.norm:g}")


PRACTICE = Practice(
    name="clip",
    title="gradient clipping",
    family="method",
    risk="algorithmic",
    source="Pascanu et al. 2013. DLO-JZ, large batches: stable training at high learning rates.",
    why=(
        "If the norm of all gradients of a step is above the limit, they are scaled down to it. Allows higher learning "
        "rates and survives bad batches; too low a limit slows every step down. Refused where the script clips by "
        "itself."
    ),
    by_hand="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)   # between backward() and step()",
    find=never_found,
    change=Clip,
    argument="the largest norm (1.0)",
    order=60,
)

"""Optimizer, learning rate and averaged weights of a recipe, from ``vivace.methods``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from vivace.methods.optim import Lamb, Lars, Lion, Muon, ScheduleFreeAdamW, Shampoo
from vivace.methods.schedule import SCHEDULES
from vivace.recipes.course import Course
from vivace.recipes.models import mup_of
from vivace.recipes.recipe import Recipe
from vivace.train.models.mup import MuP

__all__ = ["RATE_FACTOR", "Average", "make_optimizer", "make_rate", "weights_of_evaluation"]

RATE_FACTOR = "rate_factor"
"""Key of a group of parameters whose learning rate is so many times that of the recipe."""

_KINDS: dict[str, tuple[Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "adamw": (torch.optim.AdamW, {}),
    "lamb": (Lamb, {}),
    "larc": (Lars, {"clip": True}),
    "lars": (Lars, {}),
    "lion": (Lion, {}),
    "muon": (Muon, {}),
    "nadamw": (torch.optim.NAdam, {"decoupled_weight_decay": True}),
    "schedulefree": (ScheduleFreeAdamW, {}),
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),
    "shampoo": (Shampoo, {}),
}


def make_optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """Weight decay is for matrices and filters; for biases and norms if the recipe says so."""
    optim = recipe.optim
    kind, options = _KINDS[optim.name]
    asked = {name: getattr(optim, name) for name in ("momentum", "nesterov", "betas", "eps", "trust")}
    options = {**options, **{name: value for name, value in asked.items() if value is not None}}
    if recipe.speed.fused_optimizer:
        options["fused"] = True
    every = [parameter for parameter in model.parameters() if parameter.requires_grad]
    vectors = [each for each in every if each.ndim <= 1]
    groups: list[dict[str, Any]] = [
        {"params": [each for each in every if each.ndim > 1], "weight_decay": optim.weight_decay},
        {"params": vectors, "weight_decay": optim.weight_decay if optim.decay_vectors else 0.0},
    ]
    if (mup := mup_of(recipe)) is not None and mup.ratio != 1:
        groups = _split_by_width(model, groups, mup)
    optimizer = kind([group for group in groups if group["params"]], lr=optim.lr, **options)
    if isinstance(optimizer, Muon):
        optimizer.leave_to_adamw(_ends_of(model))
    return optimizer


def _split_by_width(model: nn.Module, groups: list[dict[str, Any]], mup: MuP) -> list[dict[str, Any]]:
    """Hidden matrices in groups of their own. AdamW decays by rate x weight_decay: that product stays."""
    hidden = {each for name, each in model.named_parameters() if mup.is_hidden(name, each.ndim)}
    split = []
    for group in groups:
        split.append({**group, "params": [each for each in group["params"] if each not in hidden], RATE_FACTOR: 1.0})
        own = [each for each in group["params"] if each in hidden]
        decay = group["weight_decay"] * mup.ratio
        split.append({"params": own, "weight_decay": decay, RATE_FACTOR: 1 / mup.ratio})
    return split


def _ends_of(model: nn.Module) -> list[Tensor]:
    """Embeddings and the last layer, which are no hidden matrices."""
    layers = [module for module in model.modules() if next(module.parameters(recurse=False), None) is not None]
    embeddings = [module for module in layers if isinstance(module, nn.Embedding)]
    return [parameter for module in (*embeddings, *layers[-1:]) for parameter in module.parameters(recurse=False)]


def make_rate(recipe: Recipe, course: Course, steps: int | None) -> Callable[[int], float]:
    """The learning rate of a step: a function of the step alone. ``steps``: of the training; None if a time ends it."""
    schedule, lr = recipe.schedule, recipe.optim.lr
    warmup = course.steps_of(schedule.warmup) if schedule.warmup is not None else 0
    if schedule.name == "constant":
        factor = lambda step: min(1.0, (step + 1) / warmup) if warmup else 1.0  # noqa: E731
    else:
        over = course.steps_of(schedule.over) if schedule.over is not None else steps
        assert over is not None, "checked: a schedule over a time is refused"
        factor = SCHEDULES[schedule.name](max(over, warmup + 1), warmup, **schedule.options)
    return lambda step: lr * factor(step) * course.rate(step)


class Average:
    """A moving average of the weights; the first ones count little."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._named = {name: each for name, each in model.named_parameters() if each.requires_grad}
        self._decay, self._steps = decay, 0
        self._averages = {name: each.detach().clone() for name, each in self._named.items()}

    @torch.no_grad()
    def update(self) -> None:
        self._steps += 1
        decay = min(self._decay, self._steps / (self._steps + 10))
        torch._foreach_lerp_(list(self._averages.values()), [each.detach() for each in self._named.values()], 1 - decay)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Inside, the model has the averages."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self._named.items():
            weights = parameter.detach().clone()
            parameter.copy_(self._averages[name])
            self._averages[name].copy_(weights)

    def state_dict(self) -> dict[str, Any]:
        return {"averages": self._averages, "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, average in self._averages.items():
            average.copy_(state["averages"][name])
        self._steps = int(state["steps"])


@contextlib.contextmanager
def weights_of_evaluation(optimizer: torch.optim.Optimizer, average: Average | None) -> Iterator[None]:
    """Inside, the model has the weights that are to be validated: averages, where the recipe keeps them."""
    free = optimizer if isinstance(optimizer, ScheduleFreeAdamW) else None
    if free is not None:
        free.eval()
    try:
        with average.shown() if average is not None else contextlib.nullcontext():
            yield
    finally:
        if free is not None:
            free.train()

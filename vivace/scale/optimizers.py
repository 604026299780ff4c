"""What is known of an optimizer's step, by its class: which parts of the parameters it can be given alone.

A step of the script's own may sum over all parameters, draw noise for each or count them. Nobody can see that from
outside, so only optimizers of torch are known, and of a subclass only those that leave ``step`` as it is.
"""

from __future__ import annotations

import torch

__all__ = ["steps_entry_by_entry", "steps_parameter_by_parameter"]

_ENTRY_BY_ENTRY = frozenset(
    {"SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "Adagrad", "Adadelta", "ASGD"}
)
_PARAMETER_BY_PARAMETER = _ENTRY_BY_ENTRY | {"Adafactor", "Muon", "SparseAdam"}


def steps_entry_by_entry(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step on some rows of a parameter is that of the whole, cut."""
    return _home_of_step(optimizer) in _ENTRY_BY_ENTRY


def steps_parameter_by_parameter(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step on some of its parameters does to them what a step on all does."""
    return _home_of_step(optimizer) in _PARAMETER_BY_PARAMETER


def _home_of_step(optimizer: torch.optim.Optimizer) -> str:
    """The class of torch whose ``step`` it is; empty for another one, and for one that gradients go through."""
    home = next(kind for kind in type(optimizer).__mro__ if "step" in vars(kind))
    known = home.__module__.split(".")[:2] == ["torch", "optim"] and not optimizer.defaults.get("differentiable")
    return home.__name__ if known else ""

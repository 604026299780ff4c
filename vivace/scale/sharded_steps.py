"""The script's optimizers with sharded parameters: each rank steps on its rows, with their state.

An optimizer of torch that works entry by entry sees the rows while it steps. Any other sees the sharded parameters
themselves, for which every function of torch is right. ``state_dict`` looks whole, and what is loaded is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch
from torch.optim.optimizer import (
    _global_optimizer_pre_hooks,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from vivace.measure.inside.patches import in_place_of
from vivace.scale.optimizers import steps_entry_by_entry
from vivace.scale.sharded import Sharded

__all__ = ["ShardedSteps"]


class ShardedSteps:
    def __init__(self, before: Callable[[], None]) -> None:
        self.before = before
        self._known: WeakSet[torch.optim.Optimizer] = WeakSet()
        self._seen: dict[int, list[list[Any]]] = {}  # optimizer → its groups' parameters, while it steps

    def install(self) -> None:
        self._hook = register_optimizer_step_pre_hook(_unseen(self._before_step))
        register_optimizer_step_post_hook(_unseen(self._after_step))
        self._watch_optimizers()
        self._put_states_together()
        self._cut_loaded_states()

    def go_last(self) -> None:
        """Whoever else looks at an optimizer before it steps sees the parameters that the script gave it."""
        hooks: Any = _global_optimizer_pre_hooks
        hooks.move_to_end(self._hook.id)

    def _watch_optimizers(self) -> None:
        original = torch.optim.Optimizer.add_param_group

        def add_param_group(optimizer: Any, group: Any) -> None:
            original(optimizer, group)
            self._known.add(optimizer)

        stand_in: Any = in_place_of(original, add_param_group)
        torch.optim.Optimizer.add_param_group = stand_in  # type: ignore[method-assign]

    def cut_states(self, parameters: list[Any]) -> None:
        """Of parameters that have become sharded: their optimizers may have a state already (a script that resumes)."""
        for optimizer in list(self._known):
            self._cut(optimizer, [each for each in parameters if each in optimizer.state])

    def _cut(self, optimizer: torch.optim.Optimizer, parameters: list[Any]) -> None:
        """The dictionary of a state stays: an optimizer that is stepping (L-BFGS, in whose closure a model is called
        for the first time) holds it."""
        leaf = steps_entry_by_entry(optimizer)
        for parameter in parameters:
            state = optimizer.state.pop(parameter)
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                    rows = value._local if isinstance(value, Sharded) else parameter.own_rows(value).clone()
                    state[name] = rows if leaf else parameter.like(rows)
            optimizer.state[parameter._leaf if leaf else parameter] = state

    # -- a step ------------------------------------------------------------------------------------------------------

    def _before_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self.before()
        sharded: list[Any] = [each for each in _parameters(optimizer) if isinstance(each, Sharded)]
        if sharded and steps_entry_by_entry(optimizer):
            # A step whose closure called the model for the first time has left the states with the parameters.
            self._cut(optimizer, [each for each in sharded if each in optimizer.state])
            self._seen[id(optimizer)] = [group["params"] for group in optimizer.param_groups]
            for group in optimizer.param_groups:
                group["params"] = [each._leaf if isinstance(each, Sharded) else each for each in group["params"]]

    def _after_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        for group, parameters in zip(optimizer.param_groups, self._seen.pop(id(optimizer), [])):
            group["params"] = parameters

    # -- states ------------------------------------------------------------------------------------------------------

    def _put_states_together(self) -> None:
        original = torch.optim.Optimizer.state_dict

        def state_dict(optimizer: torch.optim.Optimizer) -> Any:
            shown: list[Any] = [
                each for each in _parameters(optimizer) if isinstance(each, Sharded) and each._leaf in optimizer.state
            ]
            hidden = {}
            for parameter in shown:
                hidden[parameter._leaf] = state = optimizer.state.pop(parameter._leaf)
                optimizer.state[parameter] = _as_seen(state, parameter)
            try:
                return original(optimizer)
            finally:
                for parameter in shown:
                    del optimizer.state[parameter]
                optimizer.state.update(hidden)

        stand_in: Any = in_place_of(original, state_dict)
        torch.optim.Optimizer.state_dict = stand_in  # type: ignore[method-assign]

    def _cut_loaded_states(self) -> None:
        original = torch.optim.Optimizer.load_state_dict

        def load_state_dict(optimizer: torch.optim.Optimizer, state_dict: Any) -> None:
            original(optimizer, state_dict)
            sharded: list[Any] = [each for each in _parameters(optimizer) if isinstance(each, Sharded)]
            for parameter in sharded:
                optimizer.state.pop(parameter._leaf, None)
            self._cut(optimizer, [each for each in sharded if each in optimizer.state])

        stand_in: Any = in_place_of(original, load_state_dict)
        torch.optim.Optimizer.load_state_dict = stand_in  # type: ignore[method-assign]


def _parameters(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def _as_seen(state: dict[str, Any], parameter: Sharded) -> dict[str, Any]:
    """The rows of a state of ``steps_entry_by_entry`` as the script sees them. A step count has no dimension."""
    rows = parameter._local.shape
    return {
        name: parameter.like(value)
        if isinstance(value, torch.Tensor) and value.dim() and value.shape == rows
        else value
        for name, value in state.items()
    }


def _unseen(hook: Any) -> Any:
    def call(*args: Any) -> None:
        hook(*args)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call

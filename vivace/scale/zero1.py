"""Each rank keeps the optimizer's state of its share of the parameters, and updates those; the others get the values.

The script's optimizer object stays. While it steps it sees this rank's parameters only; ``state_dict`` is put together
from all ranks, and what is loaded is cut again.

An optimizer that is not known to treat each parameter by itself steps whole on every rank, with the reason told. So
does one that is given a closure, which must see all parameters.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.optim.optimizer import (
    _global_optimizer_pre_hooks,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from vivace.measure.inside.patches import in_place_of
from vivace.scale.group import Group
from vivace.scale.optimizers import steps_parameter_by_parameter

__all__ = ["SharedStates", "owners"]


def owners(sizes: list[int], world: int) -> list[int]:
    """Which rank owns each parameter: in order, the one that has least so far. Later ones change no earlier answer.

    >>> owners([5, 3, 2, 4], 2)
    [0, 1, 1, 0]
    """
    held = [0] * world
    found = []
    for size in sizes:
        rank = held.index(min(held))
        held[rank] += size
        found.append(rank)
    return found


class SharedStates:
    """``tell`` is called when an optimizer was met whose states cannot be shared out."""

    def __init__(self, group: Group, tell: Callable[[], None]) -> None:
        self.group, self.tell = group, tell
        self.replicated: dict[str, str] = {}
        """Name of an optimizer → why every rank keeps its state."""
        self._stepped_whole: WeakSet[torch.optim.Optimizer] = WeakSet()
        self._whole: dict[int, list[list[torch.Tensor]]] = {}  # optimizer → its groups' parameters, while it steps

    def install(self) -> None:
        self._hook = register_optimizer_step_pre_hook(_unseen(self._before_step))
        register_optimizer_step_post_hook(_unseen(self._after_step))
        self._put_states_together()
        self._cut_loaded_states()

    def go_last(self) -> None:
        """Whoever else looks at an optimizer before it steps sees all of its parameters."""
        hooks: Any = _global_optimizer_pre_hooks
        hooks.move_to_end(self._hook.id)

    def _owned(self, optimizer: torch.optim.Optimizer) -> list[tuple[torch.Tensor, int]]:
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        return list(zip(parameters, owners([each.numel() for each in parameters], self.group.world)))

    def notes(self) -> list[str]:
        names: dict[str, list[str]] = {}
        for name, reason in self.replicated.items():
            names.setdefault(reason, []).append(name)
        return [f"every rank keeps the state of {', '.join(each)}: {reason}" for reason, each in names.items()]

    def _is_shared(self, optimizer: torch.optim.Optimizer) -> bool:
        return optimizer not in self._stepped_whole and steps_parameter_by_parameter(optimizer)

    def _step_whole(self, optimizer: torch.optim.Optimizer, reason: str) -> None:
        """From here on. What the others know of its state so far comes to this rank."""
        if self._is_shared(optimizer):
            self._put_together(optimizer)
        self._stepped_whole.add(optimizer)
        if type(optimizer).__name__ not in self.replicated:
            self.replicated[type(optimizer).__name__] = reason
            self.tell()

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if any(callable(word) for word in args[1:]) or kwargs.get("closure") is not None:  # args[0]: the optimizer
            self._step_whole(optimizer, "its step is given a closure, which sees all parameters")
        elif not steps_parameter_by_parameter(optimizer):
            self._step_whole(optimizer, "its step is not known to treat each parameter by itself")
        if optimizer in self._stepped_whole:
            return
        owned = self._owned(optimizer)
        for parameter, _ in owned:
            _ = parameter.grad  # all ranks average it, also one that steps on none of these parameters
        mine = {id(parameter) for parameter, owner in owned if owner == self.group.rank}
        self._whole[id(optimizer)] = [group["params"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["params"] = [parameter for parameter in group["params"] if id(parameter) in mine]

    def _after_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        whole = self._whole.pop(id(optimizer), None)
        if whole is None:
            return
        for group, parameters in zip(optimizer.param_groups, whole):
            group["params"] = parameters
        self._send_values(self._owned(optimizer))

    def _send_values(self, owned: list[tuple[torch.Tensor, int]]) -> None:
        together: dict[Any, list[torch.Tensor]] = {}
        for parameter, owner in owned:
            together.setdefault((owner, parameter.dtype, parameter.device), []).append(parameter)
        with torch.no_grad():
            for (owner, _, _), parameters in together.items():
                flat = self.group.from_rank(owner, _flatten_dense_tensors(parameters))
                if owner != self.group.rank:
                    for parameter, value in zip(parameters, _unflatten_dense_tensors(flat, parameters)):
                        parameter.copy_(value)

    def _put_states_together(self) -> None:
        original = torch.optim.Optimizer.state_dict

        def state_dict(optimizer: torch.optim.Optimizer) -> Any:
            if not self._is_shared(optimizer):
                return original(optimizer)
            self._put_together(optimizer)
            try:
                return original(optimizer)
            finally:
                self._drop_others(optimizer)

        stand_in: Any = in_place_of(original, state_dict)
        torch.optim.Optimizer.state_dict = stand_in  # type: ignore[method-assign]

    def _put_together(self, optimizer: torch.optim.Optimizer) -> None:
        """In the order of the parameters, as one process has it."""
        for parameter, owner in self._owned(optimizer):
            if state := self._exchanged(optimizer.state.pop(parameter, None), owner, parameter):
                optimizer.state[parameter] = state

    def _exchanged(self, state: Any, owner: int, parameter: torch.Tensor) -> dict[str, Any]:
        """The owner's state of a parameter, on every rank."""
        mine = owner == self.group.rank
        described = json.dumps(_described(state or {})) if mine else ""
        kinds = json.loads(self.group.text_from_rank(owner, described))
        if mine:
            for name, kind in kinds.items():
                if kind["tensor"]:
                    self.group.from_rank(owner, state[name].detach().clone(memory_format=torch.contiguous_format))
            return dict(state or {})
        made: dict[str, Any] = {}
        for name, kind in kinds.items():
            made[name] = kind["value"]
            if kind["tensor"]:
                device = parameter.device if kind["on_device"] else torch.device("cpu")
                empty = torch.empty(kind["shape"], dtype=getattr(torch, kind["dtype"]), device=device)
                made[name] = self.group.from_rank(owner, empty)
        return made

    def _cut_loaded_states(self) -> None:
        original = torch.optim.Optimizer.load_state_dict

        def load_state_dict(optimizer: torch.optim.Optimizer, state_dict: Any) -> None:
            original(optimizer, state_dict)
            if self._is_shared(optimizer):
                self._drop_others(optimizer)

        stand_in: Any = in_place_of(original, load_state_dict)
        torch.optim.Optimizer.load_state_dict = stand_in  # type: ignore[method-assign]

    def _drop_others(self, optimizer: torch.optim.Optimizer) -> None:
        for parameter, owner in self._owned(optimizer):
            if owner != self.group.rank:
                optimizer.state.pop(parameter, None)


def _described(state: dict[str, Any]) -> dict[str, Any]:
    """Tensors by their form, all else (step counts, None) by its value."""
    described = {}
    for name, value in state.items():
        is_tensor = isinstance(value, torch.Tensor)
        described[name] = {
            "tensor": is_tensor,
            "value": None if is_tensor else value,
            "shape": list(value.shape) if is_tensor else [],
            "dtype": str(value.dtype).removeprefix("torch.") if is_tensor else "",
            "on_device": is_tensor and value.device.type != "cpu",
        }
    return described


def _unseen(hook: Any) -> Any:
    def call(*args: Any) -> None:
        hook(*args)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call

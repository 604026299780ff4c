"""Batch norm over each rank's part of the batch, where the user asked for it (``--local-bn``).

A rank normalises its rows by themselves. Running statistics move by each rank's own and are averaged over the ranks:
after each optimizer step, and before anybody uses or saves them. They move linearly, so it makes no difference when.

A batch that is run whole (to prove a split, or because it cannot be split) is normalised part by part: the same numbers
as on ranks. One process can do so too (``in_parts_everywhere``): it is what a proof compares the ranks with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

import torch
import torch.nn.functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook

from vivace.measure.inside.patches import in_place_of
from vivace.scale.group import Group
from vivace.scale.shares import Shares

__all__ = ["LocalNorms", "in_parts", "in_parts_everywhere", "keep_local", "wanted"]

_asked: list[tuple[int, Callable[[], None]]] = []


def keep_local(parts: int, tell: Callable[[], None]) -> None:
    """Asked for, before the split is put in place. ``tell`` is called when a layer was met."""
    _asked[:] = [(parts, tell)]


def wanted() -> bool:
    return bool(_asked)


class LocalNorms:
    """Of one rank. ``batch_norm`` stands in for ``F.batch_norm``; ``is_split``: whether a part is being computed."""

    def __init__(self, group: Group, is_split: Callable[[], bool]) -> None:
        self.group, self.is_split = group, is_split
        self._met: list[Any] = []  # running statistics, in the order in which every rank met them
        self._known: set[int] = set()
        self._moved = False

    def install(self) -> None:
        F.batch_norm = self._standing_in(F.batch_norm)
        original = torch.nn.Module.state_dict

        def state_dict(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            self.agree()
            return original(module, *args, **kwargs)

        stand_in: Any = in_place_of(original, state_dict)
        torch.nn.Module.state_dict = stand_in  # type: ignore[method-assign]
        after: Any = lambda *_: self.agree()  # noqa: E731
        after._torchdynamo_disable = True
        register_optimizer_step_post_hook(after)

    def _standing_in(self, original: Any) -> Any:
        def batch_norm(
            input: torch.Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
            training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
        ) -> torch.Tensor:  # fmt: skip
            _asked[0][1]()
            if not training:
                self.agree()
            elif not self.is_split():
                return in_parts(
                    original, self.group.world, input, running_mean, running_var, weight, bias, momentum, eps
                )
            elif running_mean is not None:
                self._note(running_mean, running_var)
            return original(input, running_mean, running_var, weight, bias, training, momentum, eps)

        return in_place_of(original, batch_norm)

    def _note(self, *statistics: torch.Tensor) -> None:
        self._moved = True
        for each in statistics:
            if id(each) not in self._known:
                self._known.add(id(each))
                self._met.append(ref(each))

    def agree(self) -> None:
        """One mean of all that moved. Every rank calls this at the same moments."""
        if not self._moved:
            return
        self._moved = False
        met = [each for known in self._met if (each := known()) is not None]
        self._met, self._known = [ref(each) for each in met], {id(each) for each in met}
        with torch.no_grad():
            for kind in dict.fromkeys((each.dtype, each.device) for each in met):
                alike = [each for each in met if (each.dtype, each.device) == kind]
                flat = self.group.sum(torch.cat([each.reshape(-1) for each in alike])).div_(self.group.world)
                for each, mean in zip(alike, flat.split([each.numel() for each in alike])):
                    each.copy_(mean.view_as(each))


def in_parts(
    original: Any, parts: int, input: torch.Tensor, running_mean: Any, running_var: Any, weight: Any, bias: Any,
    momentum: float, eps: float,
) -> torch.Tensor:  # fmt: skip
    """Each part of the batch by itself; the running statistics move by the mean of the parts'."""
    shares = Shares(input.size(0), 0, parts)
    if not shares.can_be_split:
        return original(input, running_mean, running_var, weight, bias, True, momentum, eps)
    outputs: list[torch.Tensor] = []
    moved: list[Any] = []
    for part in input.split(shares.sizes):
        own = None if running_mean is None else (running_mean.clone(), running_var.clone())
        outputs.append(original(part, *(own or (None, None)), weight, bias, True, momentum, eps))
        moved.append(own)
    if running_mean is not None:
        with torch.no_grad():
            running_mean.copy_(torch.stack([own[0] for own in moved]).mean(0))
            running_var.copy_(torch.stack([own[1] for own in moved]).mean(0))
    return torch.cat(outputs)


def in_parts_everywhere(parts: int) -> None:
    """In one process: every batch norm in training mode."""
    original = F.batch_norm

    def batch_norm(
        input: torch.Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
        training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
    ) -> torch.Tensor:  # fmt: skip
        if training:
            return in_parts(original, parts, input, running_mean, running_var, weight, bias, momentum, eps)
        return original(input, running_mean, running_var, weight, bias, training, momentum, eps)

    F.batch_norm = in_place_of(original, batch_norm)

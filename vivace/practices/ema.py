"""Averaged weights: ``ema=0.999``. The script validates and saves a moving average of the weights that it trains."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from vivace.measure.inside.patches import in_place_of
from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Practice, never_found

if TYPE_CHECKING:
    import torch

_DEFAULT = 0.999


class Averaged(Change):
    """Weights and averages change places: averages are shown in evaluation mode, the weights in training mode."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.decay = _DEFAULT if argument is None else float(argument)
        if not 0 < self.decay < 1:
            raise ValueError(f"{argument!r} is not between 0 and 1")
        self.steps = 0
        self.shows_averages = False
        self.roots: WeakSet[torch.nn.Module] = WeakSet()

    @functools.cached_property
    def hidden(self) -> Any:
        """Parameter → its average; while averages are shown, its weight."""
        from torch.utils.weak import WeakIdKeyDictionary

        return WeakIdKeyDictionary()

    def model(self, root: torch.nn.Module) -> None:
        """Not by a hook on the model: it would be pickled with it."""
        import torch

        self.roots.add(root)
        if len(self.roots) > 1:
            return
        own = torch.nn.Module.state_dict

        def state_dict(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if module in self.roots:
                self._show(averages=True)
            return own(module, *args, **kwargs)

        kind: Any = torch.nn.Module
        kind.state_dict = in_place_of(own, state_dict)

    def forward(self, root: torch.nn.Module) -> AbstractContextManager[Any] | None:
        self._show(averages=not root.training)
        return None

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.shows_averages:
            raise NotApplicable("gradients are taken in evaluation mode")

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        import torch

        if self.shows_averages:
            return
        self.steps += 1
        decay = min(self.decay, self.steps / (self.steps + 10))  # the first weights count little
        parameters = [each for group in optimizer.param_groups for each in group["params"] if each.requires_grad]
        with torch.no_grad():
            for parameter in parameters:
                if parameter not in self.hidden:
                    self.hidden[parameter] = parameter.detach().clone()
            averages = [self.hidden[parameter] for parameter in parameters]
            torch._foreach_lerp_(averages, [each.detach() for each in parameters], 1 - decay)
        self.applied(f"average of {len(parameters)} tensors, decay {self.decay:g}: validated and saved")

    def _show(self, averages: bool) -> None:
        if averages is self.shows_averages or not self.hidden:
            return
        self.shows_averages = averages
        for parameter, other in self.hidden.items():
            shown = parameter.detach().clone()
            parameter.data.copy_(other)
            other.copy_(shown)


PRACTICE = Practice(
    name="ema",
    title="averaged weights",
    family="method",
    risk="algorithmic",
    source="Polyak and Juditsky 1992; Tarvainen and Valpola 2017. AlgoPerf: EMA and LAWA submissions.",
    why=(
        "The average of the last weights lies in a flatter place than any of them, so it often validates as well as "
        "weights after a long decay of the learning rate. Training itself is unchanged. What the script validates and "
        "saves is the average; a training that resumes from such a file goes on from the average. Costs a copy of the "
        "weights."
    ),
    by_hand="averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))",
    find=never_found,
    change=Averaged,
    argument="the decay (0.999)",
    order=70,
)

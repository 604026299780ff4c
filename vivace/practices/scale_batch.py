"""A batch that grows with the ranks: ``vivace run --ranks 4 --scale-batch --lr-rule linear``. Another training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from vivace.practices.ddp import find
from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Practice
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

RULES = ("linear", "sqrt", "none")
_WARM_UP_EPOCHS = 5  # Goyal et al. 2017, section 2.2


class ScaleBatch(Change):
    """``4:linear:200``: four times the batch, the rule for the learning rate, steps of warm-up (5 epochs if not said).

    Loaders are made with the larger batch. The learning rate is multiplied around each step of an optimizer and put
    back after it, so that schedules and values that the script sets itself are scaled too; what it prints is its own.
    """

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        times, _, rest = (argument or "1:none").partition(":")
        rule, _, steps = rest.partition(":")
        if not times.isdecimal() or int(times) < 1 or rule not in RULES or (steps and not steps.isdecimal()):
            raise ValueError(f"{argument!r} is not TIMES:RULE, with one of {', '.join(RULES)}")
        self.times, self.rule = int(times), rule
        self.warm_up_steps = int(steps) if steps else None
        self._steps: dict[int, int] = {}  # of each optimizer
        self._own: dict[int, list[Any]] = {}  # its learning rates, while it steps
        self._watches = False

    # -- the batch -----------------------------------------------------------------------------------------------

    def loader(self, arguments: dict[str, Any]) -> None:
        if self.times == 1:
            raise NotApplicable("one time the batch is the batch: scale_batch=4:linear")
        sampler = arguments.get("batch_sampler")
        if sampler is not None:
            if type(sampler) is not torch.utils.data.BatchSampler:
                raise NotApplicable(f"the loader has a batch sampler of its own ({type(sampler).__name__})")
            arguments["batch_sampler"] = torch.utils.data.BatchSampler(
                sampler.sampler, self.times * sampler.batch_size, sampler.drop_last
            )
            batch = self.times * sampler.batch_size
        elif arguments["batch_size"] is None:
            raise NotApplicable("the dataset makes its own batches")
        else:
            batch = self.times * arguments["batch_size"]
            samples = _length(arguments)
            if arguments.get("drop_last") and samples is not None and samples < batch:
                raise NotApplicable(f"a batch of {batch} is more than the {samples} samples of its dataset")
            arguments["batch_size"] = batch
        self._decide_warm_up(arguments, batch)
        self.applied(f"batches are {self.times} times the script's ({batch} samples); {self._rule_in_words()}")

    def _decide_warm_up(self, arguments: Mapping[str, Any], batch: int) -> None:
        if self.rule != "linear" or self.warm_up_steps is not None:
            return
        samples = _length(arguments)
        if samples is None:
            raise NotApplicable("the length of an epoch is not known: --lr-warmup STEPS says how long to warm up")
        self.warm_up_steps = _WARM_UP_EPOCHS * math.ceil(samples / batch)

    def _rule_in_words(self) -> str:
        if self.rule == "linear":
            return f"learning rates are {self.times} times the script's after a warm-up of {self.warm_up_steps} steps"
        if self.rule == "sqrt":
            return f"learning rates are {math.sqrt(self.times):.3g} times the script's"
        return "learning rates are the script's"

    # -- the learning rate ---------------------------------------------------------------------------------------

    def factor(self, step: int) -> float:
        """At an optimizer's step, counted from 1.

        >>> rule = ScaleBatch("4:linear:10")
        >>> rule.factor(5), rule.factor(10), rule.factor(99), ScaleBatch("4:sqrt").factor(1)
        (2.5, 4.0, 4.0, 2.0)
        """
        if self.rule == "sqrt":
            return math.sqrt(self.times)
        if self.rule == "none":
            return 1.0
        return 1.0 + (self.times - 1) * min(1.0, step / max(1, self.warm_up_steps or 0))

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.done is None or self.rule == "none":  # no batch was scaled
            return
        if not self._watches:
            self._watches = True
            _after_every_step(self._put_back)
        step = self._steps[id(optimizer)] = self._steps.get(id(optimizer), 0) + 1
        self._own[id(optimizer)] = [group.get("lr") for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            if group.get("lr") is not None:
                group["lr"] = group["lr"] * self.factor(step)

    def _put_back(self, optimizer: torch.optim.Optimizer) -> None:
        for group, own in zip(optimizer.param_groups, self._own.pop(id(optimizer), [])):
            if own is not None:
                group["lr"] = own


def _after_every_step(put_back: Any) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def after(optimizer: Any, *_: Any) -> None:
        put_back(optimizer)

    after._torchdynamo_disable = True  # type: ignore[attr-defined]
    register_optimizer_step_post_hook(after)


def _length(arguments: Mapping[str, Any]) -> int | None:
    """Samples of an epoch, where that is known."""
    for known in (arguments.get("sampler"), arguments["dataset"]):
        try:
            return len(known)  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):
            continue
    return None


PRACTICE = Practice(
    name="scale_batch",
    title="a batch that grows with the ranks, and its learning rate",
    family="structure",
    risk="algorithmic",
    source=(
        "Linear with warm-up, for SGD: Goyal et al. 2017, arXiv 1706.02677. Square root: Krizhevsky 2014, arXiv "
        "1404.5997; for Adam and RMSprop: Malladi et al. 2022, arXiv 2205.10287 (which scales betas and epsilon too; "
        "not done here)."
    ),
    why=(
        "Each rank takes the script's whole batch, so that the global batch is N times larger: ranks stay busy where a "
        "part of the batch would be too small. It is another training: fewer steps an epoch, and a learning rate "
        "that has to follow. It is equal to one process with that batch and that rule. Needs --ranks."
    ),
    by_hand=(
        "loader = DataLoader(dataset, batch_size=4 * batch_size)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=4 * lr)  # reached by a warm-up of some epochs"
    ),
    find=find,
    change=ScaleBatch,
    argument="TIMES:linear|sqrt|none",
    order=4,
)

"""A learning-rate schedule for a script that has none: ``schedule=cosine:10000:500``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from vivace.methods.schedule import SCHEDULES, Cosine
from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Practice, never_found
from vivace.practices.engine.rates import StepRates

if TYPE_CHECKING:
    import torch

_DEFAULT_STEPS = 1000


class Scheduled(Change):
    """``NAME:STEPS[:WARMUP]``. The rate that the script gave its optimizer is the highest one."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.shape = _parsed(argument) if argument else Cosine(_DEFAULT_STEPS)
        self.rates = StepRates()
        self.steps: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self.own: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        rates = [group["lr"] for group in optimizer.param_groups]
        if any("initial_lr" in group for group in optimizer.param_groups):  # torch's schedulers leave it there
            raise NotApplicable("the script has a learning-rate schedule of its own")
        if self.own.setdefault(optimizer, rates) != rates:
            raise NotApplicable("the script changes its learning rate by hand")
        step = self.steps.get(optimizer, 0)
        self.rates.set(optimizer, lambda _group: self.shape(step))
        self.applied(f"{type(self.shape).__name__} over {self.shape.steps} steps, {self.shape.warmup} of them warm-up")

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.rates.put_back(optimizer)
        self.steps[optimizer] = self.steps.get(optimizer, 0) + 1


def _parsed(argument: str) -> Any:
    name, *numbers = argument.split(":")
    if name not in SCHEDULES:
        raise ValueError(f"there is no schedule {name!r}; there are {', '.join(sorted(SCHEDULES))}")
    if not 1 <= len(numbers) <= 2 or not all(number.isdigit() for number in numbers):
        raise ValueError(f"how many steps? {name}:10000, or {name}:10000:500 with a warm-up of 500")
    return SCHEDULES[name](*(int(number) for number in numbers))


PRACTICE = Practice(
    name="schedule",
    title="learning-rate schedule",
    family="method",
    risk="algorithmic",
    source="DLO-JZ, schedulers: OneCycle, cosine, step, exponential, polynomial. Goyal et al. 2017: warm-up.",
    why=(
        "A rate that falls towards the end lets a training settle; a warm-up lets it begin with a high one. The shape "
        "needs the number of steps: say it. Refused where the script has a schedule of its own. A training that "
        "resumes begins the shape again, because only the script saves and loads."
    ),
    by_hand=(
        "from vivace.methods.schedule import Cosine\n"
        "scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, Cosine(10_000, warmup=500))"
    ),
    find=never_found,
    change=Scheduled,
    argument="cosine|exponential|onecycle|poly|step|wsd, :STEPS, and :WARMUP",
    order=62,
)

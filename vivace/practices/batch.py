"""Larger batches: ``batch=4096``. The training loader's batch, and the learning rate with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Practice, never_found
from vivace.practices.engine.rates import StepRates

if TYPE_CHECKING:
    import torch

_DEFAULT_TIMES = 2
_ROOT_RULE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Lamb", "Lion", "Muon", "Shampoo")
"""Optimizers whose steps do not grow with the gradient: Malladi et al. 2022, Krizhevsky 2014."""


class LargerBatch(Change):
    """``SIZE[:linear|sqrt|none[:WARMUP]]``."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.size, self.rule, self.warmup = _parsed(argument)
        self.times: float | None = None
        self.rates = StepRates()
        self.steps: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def loader(self, arguments: dict[str, Any]) -> None:
        own = arguments.get("batch_size")
        if not _shuffles(arguments):
            return  # a validation's loader, or one whose order matters
        if own is None or arguments.get("batch_sampler") is not None:
            raise NotApplicable("the script forms its batches itself")
        size = self.size or own * _DEFAULT_TIMES
        samples = _length(arguments.get("dataset"))
        if samples is not None and size > samples:
            raise NotApplicable(f"a batch of {size} is more than the {samples} samples of the data set")
        if self.times is not None and size / own != self.times:
            raise NotApplicable("the script has training loaders with different batch sizes")
        self.times = size / own
        if self.warmup is None and samples is not None:
            self.warmup = max(1, samples // size)  # one epoch
        arguments["batch_size"] = size
        self.applied(f"training batches of {size} in place of {own}, learning rates by the {self._rule_in_words()}")

    def _rule_in_words(self) -> str:
        return {"linear": "linear rule", "sqrt": "square-root rule", "none": "script alone"}.get(
            self.rule or "", "linear rule (square root for Adam-like optimizers)"
        )

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.times is None:
            raise NotApplicable("no training loader was met: none is a DataLoader that shuffles")
        self.rates.set(optimizer, lambda _group: self._factor(optimizer))

    def _factor(self, optimizer: torch.optim.Optimizer) -> float:
        assert self.times is not None
        rule = self.rule or ("sqrt" if type(optimizer).__name__ in _ROOT_RULE else "linear")
        full = {"linear": self.times, "sqrt": self.times**0.5, "none": 1.0}[rule]
        step, warmup = self.steps.get(optimizer, 0), self.warmup or 0
        return full if step >= warmup else 1 + (full - 1) * (step + 1) / warmup

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.rates.put_back(optimizer)
        self.steps[optimizer] = self.steps.get(optimizer, 0) + 1


def _parsed(argument: str | None) -> tuple[int | None, str | None, int | None]:
    if argument is None:
        return None, None, None
    size, *more = argument.split(":")
    rule = more[0] if more else None
    if not size.isdigit() or int(size) < 1 or len(more) > 2 or rule not in (None, "linear", "sqrt", "none"):
        raise ValueError(
            f"{argument!r} is no batch size with a rule: batch=4096, batch=4096:sqrt, batch=4096:linear:500"
        )
    if len(more) == 2 and not more[1].isdigit():
        raise ValueError(f"{more[1]!r} is no number of warm-up steps")
    return int(size), rule, int(more[1]) if len(more) == 2 else None


def _shuffles(arguments: dict[str, Any]) -> bool:
    sampler = arguments.get("sampler")
    return bool(arguments.get("shuffle")) or type(sampler).__name__ in ("RandomSampler", "WeightedRandomSampler")


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except TypeError:
        return None


PRACTICE = Practice(
    name="batch",
    title="larger batch",
    family="method",
    risk="algorithmic",
    source=(
        "DLO-JZ, large batches. Goyal et al. 2017: the rate grows with the batch, after a warm-up. Malladi et al. "
        "2022: with its square root for Adam."
    ),
    why=(
        "A larger batch uses a GPU, and many GPUs, better, but an epoch has fewer steps. The learning rate is "
        "multiplied to make up for it, after a warm-up of one epoch. Schedules of the script that count epochs stay "
        "right; those that count steps see fewer of them. Whether the target comes sooner only a race tells."
    ),
    by_hand="loader = DataLoader(…, batch_size=4096)   # and lr × 4096 / the old size, after a warm-up",
    find=never_found,
    change=LargerBatch,
    argument="SIZE (twice the script's), :linear|sqrt|none, and :WARMUP steps",
    order=12,
)

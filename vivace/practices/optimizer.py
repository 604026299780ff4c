"""Another optimizer in place of the script's: ``optimizer=muon``, ``optimizer=lamb:0.02``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Practice, never_found
from vivace.practices.engine.rates import StepRates

if TYPE_CHECKING:
    import torch

_ADAM_LIKE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax")
_TAKES_ADAM_RATES = {"adamw", "nadamw", "muon", "shampoo"}
# Chen et al. 2023, section 5: Lion's rate is 3 to 10 times smaller than AdamW's, its decay as many times larger.
_LION_TIMES = 5.0
_KEPT = ("betas", "momentum", "nesterov", "eps")
"""Options that mean the same to both, taken over where both have them."""


@dataclass(frozen=True)
class _Kind:
    """How to make one, as words: torch is not imported where the command only reads names."""

    module: str
    name: str
    options: dict[str, Any]

    def load(self) -> Any:
        import importlib

        return getattr(importlib.import_module(self.module), self.name)


_KINDS = {
    "adamw": _Kind("torch.optim", "AdamW", {}),
    "lamb": _Kind("vivace.methods.optim.lamb", "Lamb", {}),
    "larc": _Kind("vivace.methods.optim.lars", "Lars", {"clip": True}),
    "lars": _Kind("vivace.methods.optim.lars", "Lars", {}),
    "lion": _Kind("vivace.methods.optim.lion", "Lion", {}),
    "muon": _Kind("vivace.methods.optim.muon", "Muon", {}),
    "nadamw": _Kind("torch.optim", "NAdam", {"decoupled_weight_decay": True}),
    "sgd": _Kind("torch.optim", "SGD", {"momentum": 0.9}),
    "shampoo": _Kind("vivace.methods.optim.shampoo", "Shampoo", {}),
}
_DEFAULT = "muon"


class OtherOptimizer(Change):
    """The script's optimizer object becomes one of another class: its parameter groups, schedules and names stay."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        name, colon, rate = (argument or _DEFAULT).partition(":")
        self.name = name.strip().lower()
        if self.name == "schedulefree":
            raise ValueError(
                "schedule-free needs optimizer.train() and optimizer.eval() in the script: vivace.methods.optim has it"
            )
        if self.name not in _KINDS:
            raise ValueError(f"there is no optimizer {self.name!r}; there are {', '.join(sorted(_KINDS))}")
        self.rate = _positive(rate) if colon else None
        self.rates = StepRates()
        self.factors: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
        self.not_hidden: list[torch.Tensor] = []  # of the models met: embeddings and last layers

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        import torch

        before = type(optimizer)
        if before.__module__.partition(".")[0] != "torch" or getattr(torch.optim, before.__name__, None) is not before:
            raise NotApplicable(f"{before.__name__} is an optimizer of the script's own")
        factor, decay = self._translation(before.__name__, optimizer.defaults)
        kind = _KINDS[self.name]
        groups = [_group(group, optimizer.defaults, decay) for group in optimizer.param_groups]
        options = {**_kept(kind.load(), optimizer.defaults), **kind.options}
        made = kind.load()(groups, lr=optimizer.defaults["lr"], **options)  # raises before anything has changed
        for group in made.param_groups:
            for name in ("fused", "foreach"):
                if name in group:
                    group[name] = None
        optimizer.__class__ = type(made)
        optimizer.__dict__.clear()
        optimizer.__dict__.update(made.__dict__)
        self.factors[optimizer] = factor
        self._tell_muon()
        self.applied(f"{type(made).__name__} in place of {before.__name__}, its learning rates times {factor:.3g}")

    def _translation(self, before: str, defaults: dict[str, Any]) -> tuple[float, float]:
        """What the script's rates and weight decays are multiplied by."""
        own = float(defaults["lr"])
        if self.rate is not None:
            if own <= 0:
                raise NotApplicable(f"{before} was made with a learning rate of {own:g}: nothing to compare with")
            return self.rate / own, 1.0
        if before in _ADAM_LIKE and self.name in _TAKES_ADAM_RATES:
            return 1.0, 1.0
        if before in _ADAM_LIKE and self.name == "lion":
            return 1 / _LION_TIMES, _LION_TIMES
        raise NotApplicable(
            f"no rule turns a learning rate for {before} into one for {self.name}: "
            f"give one, optimizer={self.name}:RATE (`vivace find lr --with optimizer={self.name}:{own:g}` looks for it)"
        )

    def model(self, root: torch.nn.Module) -> None:
        """Muon is for the matrices of hidden layers: embeddings and the last layer stay with AdamW."""
        import torch

        layers = [module for module in root.modules() if next(module.parameters(recurse=False), None) is not None]
        embeddings = [module for module in layers if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag))]
        for module in (*embeddings, *layers[-1:]):
            self.not_hidden += module.parameters(recurse=False)
        self._tell_muon()

    def _tell_muon(self) -> None:
        for optimizer in self.factors:
            if self.name == "muon":
                optimizer.leave_to_adamw(self.not_hidden)

    def no_optimizer(self) -> None:
        raise NotApplicable("the script has no optimizer: it updates its parameters by hand")

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        factor = self.factors.get(optimizer)
        if factor is not None:
            self.rates.set(optimizer, lambda _group: factor)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer in self.factors:
            self.rates.put_back(optimizer)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise ValueError(f"{text!r} is no learning rate")
    return value


def _group(group: dict[str, Any], defaults: dict[str, Any], decay: float) -> dict[str, Any]:
    """Parameters, rate, decay, and what the script itself put into the group."""
    own = {name: value for name, value in group.items() if name not in defaults}
    if "weight_decay" in group:
        own["weight_decay"] = group["weight_decay"] * decay
    return {**own, "lr": group["lr"]}


def _kept(kind: Any, defaults: dict[str, Any]) -> dict[str, Any]:
    import inspect

    known = inspect.signature(kind.__init__).parameters
    kept = {name: defaults[name] for name in _KEPT if name in defaults and name in known}
    if kept.get("momentum") == 0:  # SGD without momentum says nothing about the momentum of others
        del kept["momentum"]
        kept.pop("nesterov", None)
    return kept


PRACTICE = Practice(
    name="optimizer",
    title="another optimizer",
    family="method",
    risk="algorithmic",
    source=(
        "DLO-JZ, optimizers and large batches (SGD, AdamW, LAMB, LARC, Lion). You et al. 2017, 2019; Gupta et al. "
        "2018; Chen et al. 2023; Jordan et al. 2024."
    ),
    why=(
        "Some optimizers need fewer steps, above all with large batches. Parameter groups, schedules and what the "
        "script prints stay; the rate is multiplied for the step. Muon, Shampoo, NAdamW and AdamW take rates of "
        "Adam-like optimizers as they are, Lion a fifth (and five times the weight decay). All other pairs need a "
        "rate: optimizer=lamb:0.02 stands for the rate in the script's constructor. Only a race tells whether it pays."
    ),
    by_hand="from vivace.methods.optim import Lamb\noptimizer = Lamb(model.parameters(), lr=0.02, weight_decay=0.01)",
    find=never_found,
    change=OtherOptimizer,
    argument="adamw|lamb|larc|lars|lion|muon|nadamw|sgd|shampoo, and :RATE",
    excludes=("foreach_optimizer", "fused_optimizer", "zero1", "fsdp"),
    order=15,
)

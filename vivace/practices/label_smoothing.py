"""Label smoothing: ``label_smoothing=0.1``. A little of every target goes to all classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Practice, never_found

if TYPE_CHECKING:
    import torch

_DEFAULT = 0.1  # Szegedy et al. 2016; the course's dlojz.py


class LabelSmoothing(Change):
    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.amount = _DEFAULT if argument is None else float(argument)
        if not 0 < self.amount < 1:
            raise ValueError(f"{argument!r} is not between 0 and 1")

    def cross_entropy(self, compute: Any, scores: torch.Tensor, targets: Any, arguments: dict[str, Any]) -> Any:
        if arguments["label_smoothing"]:
            raise NotApplicable(f"the script smooths its labels by {arguments['label_smoothing']:g} already")
        arguments["label_smoothing"] = self.amount
        self.applied(f"labels smoothed by {self.amount:g} in training")
        return None


PRACTICE = Practice(
    name="label_smoothing",
    title="label smoothing",
    family="method",
    risk="algorithmic",
    source="Szegedy et al. 2016. DLO-JZ: dlojz.py trains with CrossEntropyLoss(label_smoothing=0.1).",
    why=(
        "The model need not push the right class to certainty, which often helps its accuracy on new data. Acts on "
        "cross-entropies that are differentiated; the validation's loss stays as it is. The training loss is another "
        "quantity afterwards: do not compare it with the one without."
    ),
    by_hand="criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)",
    find=never_found,
    change=LabelSmoothing,
    argument="the share that goes to all classes (0.1)",
    order=30,
)

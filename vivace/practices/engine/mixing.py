"""Mixes the images of a training batch, and the loss with them: what ``mixup`` and ``cutmix`` share.

The images go into the model mixed; the cross-entropy against the script's class numbers becomes that against both
images' classes, in the shares of the picture. So the script's labels and loader stay as they are. The first batch goes
through unmixed: it must show that the loss is a cross-entropy that can be seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Callable

from vivace.practices.engine.change import Change, NotApplicable

if TYPE_CHECKING:
    import torch

    from vivace.methods.augment.mixes import Mix
    from vivace.scale.place import ScalePlace

__all__ = ["Mixing"]


class Mixing(Change, ABC):
    """``mix(images, α, draws)`` is the method."""

    name: str
    alpha: float  # of Beta(α, α), if no argument is given

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.alpha = self.alpha if argument is None else float(argument)
        if not 0 < self.alpha < float("inf"):
            raise ValueError(f"{argument!r} is not above 0")
        self.split = False
        self.watched: int | None = None  # samples of a batch that went in unmixed, until its loss is seen
        self.sees_loss = False
        self.mixed: Mix | None = None  # the batch whose loss has not been differentiated yet
        self.used = False
        self.draws: torch.Generator | None = None

    @abstractmethod
    def mix(self) -> Callable[[torch.Tensor, float, torch.Generator | None], Mix]:
        """The method itself."""

    def over_ranks(self, place: ScalePlace) -> None:
        self.split = True

    def inputs(self, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        import torch

        if not (root.training and torch.is_grad_enabled()):
            return args, kwargs
        if self.split:
            raise NotApplicable("a batch that is split over ranks cannot be mixed yet")
        images = args[0] if args else None
        if not (isinstance(images, torch.Tensor) and images.dim() == 4 and images.is_floating_point()):
            raise NotApplicable(f"the first input of {type(root).__name__} is no batch of images")
        if not self.sees_loss:
            self.watched = len(images)
            return args, kwargs
        if len(images) < 2:
            return args, kwargs
        if self.draws is None:  # numbers of its own: what the script draws stays the same
            self.draws = torch.Generator().manual_seed(torch.initial_seed() % 2**63)
        with torch.no_grad():
            self.mixed, self.used = self.mix()(images, self.alpha, self.draws), False
        self.applied(f"training images of {type(root).__name__}, from the second batch on")
        return (self.mixed.images, *args[1:]), kwargs

    def cross_entropy(self, compute: Any, scores: torch.Tensor, targets: Any, arguments: dict[str, Any]) -> Any:
        fits = _classes_of(scores, targets) and arguments["weight"] is None
        if self.watched is not None and len(scores) == self.watched:
            self.sees_loss = fits
            self.watched = None
            if not fits:
                raise NotApplicable("the loss is no plain cross-entropy against class numbers")
        if self.mixed is None or len(scores) != len(self.mixed.share) or not fits:
            return None
        self.used = True
        reduction = arguments.pop("reduction")
        own, others = (
            compute(scores, classes, reduction="none", **arguments)
            for classes in (targets, targets[self.mixed.partner])
        )
        share = self.mixed.share.to(own.dtype)
        losses = share * own + (1 - share) * others
        return losses if reduction == "none" else getattr(losses, reduction)()

    def loss(self, loss: torch.Tensor) -> torch.Tensor:
        if self.watched is not None and not self.sees_loss:
            self.watched = None
            raise NotApplicable("the script's loss is not torch's cross-entropy")
        if self.mixed is not None and not self.used:
            raise RuntimeError(
                f"vivace: {self.name} mixed the images of this batch, but its loss is not the cross-entropy that the "
                "first batch had: train without it"
            )
        return loss

    def after_backward(self) -> None:
        self.mixed = None


def _classes_of(scores: torch.Tensor, targets: Any) -> bool:
    """A class number for each row of scores."""
    whole = hasattr(targets, "is_floating_point") and not targets.is_floating_point()
    return bool(whole and scores.dim() == 2 and targets.dim() == 1 and len(targets) == len(scores))

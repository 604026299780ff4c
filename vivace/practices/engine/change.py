"""``Change``: what a practice does to the parts of a training job. A practice overrides the parts that it touches.

Methods run inside the user's process, as the parts come into being. Each either makes its change and says so with
``applied``, or raises ``NotApplicable`` with the reason in a sentence; then that part stays as the script made it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from vivace.practices.engine.torch_later import torch
from vivace.protocol.answers import NOT_MET, PracticeAnswer, PracticeState

if TYPE_CHECKING:
    from vivace.practices.switching.live import Live
    from vivace.scale.place import ScalePlace

__all__ = ["Change", "NotApplicable"]


class NotApplicable(Exception):
    """Why a change is left out: a sentence for the user."""


class Change:
    """One practice with its argument (``compile=reduce-overhead`` → ``"reduce-overhead"``), in one process."""

    same_draws = False
    """Random numbers are to be drawn as the script alone would: the run judges harm, and is not timed."""

    def __init__(self, argument: str | None = None) -> None:
        self.argument = argument
        self.done: str | None = None  # what was changed
        self.refused: str | None = None  # why it was not
        self.failed = False  # that reason is an error of the practice's own

    on = True
    """Off: its parts around a forward are passed by. Only where practices are switched while a script trains."""
    switchable = False
    """Whether ``switch`` can put it in place in a running training, and take it away again."""
    undecided = False
    """More steps are needed to say what became of it."""

    # -- before the process starts (called by the parent) ----------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """Variables that the command starts with; those that the user has set win."""
        return {}

    # -- in the process, in this order -----------------------------------------------------------------------------

    def over_ranks(self, place: ScalePlace) -> None:
        """In a process that is one of several (``--ranks``): right after ``import torch``, before anything else."""

    def flags(self) -> None:
        """Global switches: right after ``import torch``, and again before the first forward (scripts set them too)."""

    def loader(self, arguments: dict[str, Any]) -> None:
        """The arguments of a DataLoader, changed in place."""

    def iterator(self, loader: Any, iterator: Any) -> Any:
        """The iterator of a DataLoader over one epoch, or one that stands in for it."""
        return iterator

    def optimizer(self, kind: type, arguments: dict[str, Any]) -> None:
        """The arguments of a torch optimizer, changed in place."""

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        """One of torch's own optimizers, right after its constructor."""

    def wrapper(self, arguments: dict[str, Any]) -> None:
        """The arguments of a DistributedDataParallel, changed in place."""

    def model(self, root: torch.nn.Module) -> None:
        """A root module before its first forward (before it is wrapped, if it is). Names in its state dict stay."""

    def inputs(self, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The inputs of a root's forward."""
        return args, kwargs

    def forward(self, root: torch.nn.Module) -> AbstractContextManager[Any] | None:
        """A context around a root's forward, or None."""
        return None

    def outputs(self, value: Any) -> Any:
        """What a root's forward returns."""
        return value

    def arrived(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A copy on the GPU that ``tensor.to(GPU)`` or ``tensor.cuda()`` of a host tensor can start from, or None."""
        return None

    def copy(self, tensor: torch.Tensor, arguments: dict[str, Any]) -> None:
        """The keyword arguments of such a copy, where the script does not say whether it blocks; changed in place."""

    def cross_entropy(self, compute: Any, scores: torch.Tensor, targets: Any, arguments: dict[str, Any]) -> Any:
        """A cross-entropy that will be differentiated: a loss in its place, or None. ``compute`` is torch's own."""
        return None

    def loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The scalar that a backward starts from."""
        return loss

    def after_backward(self) -> None:
        """Right after a backward whose loss was seen, also after one that raised."""

    def before_gradients_are_read(self) -> None:
        """Right before gradients are clipped or unscaled with torch's own functions."""

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Right before an optimizer steps."""

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Right after it, the last change first: what ``before_step`` set for the step is put back."""

    def no_optimizer(self) -> None:
        """Once, before the first backward pass of a script that has made no optimizer: it will update its parameters
        by hand, and ``before_step`` is never called."""

    # -- in a running training -------------------------------------------------------------------------------------

    def switch(self, on: bool, live: Live) -> None:
        """Between two steps. Global switches are put back by the caller when it is switched off."""
        if on:
            self.flags()

    # -- telling ---------------------------------------------------------------------------------------------------

    def applied(self, what: str) -> None:
        if self.done is None:
            self.done = what

    def answer(self) -> PracticeAnswer:
        """What became of it so far."""
        if self.done:
            return PracticeAnswer(PracticeState.APPLIED, self.done)
        if self.refused:
            return PracticeAnswer(PracticeState.FAILED if self.failed else PracticeState.REFUSED, self.refused)
        return NOT_MET

    def touches(self, part: str) -> bool:
        """Whether this practice overrides a part: only those are patched."""
        return getattr(type(self), part) is not getattr(Change, part)

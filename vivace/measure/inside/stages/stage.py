"""``Stage``: a number of steps with one purpose. It keeps what it saw."""

from __future__ import annotations

from abc import ABC, abstractmethod

from vivace.measure.inside.training import Training

__all__ = ["Stage"]


class Stage(ABC):
    """``says`` is what the user reads while it lasts; ``steps`` how many it has had."""

    says = ""
    takes_norms = False
    """Whether gradient norms may be taken: they cost time, so never in timed steps."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.steps = 0

    @property
    def of(self) -> int | None:
        """How many steps it will have, where that is known."""
        return None

    @abstractmethod
    def begin(self) -> bool:
        """Between two steps. False: there is nothing to do, and the next stage begins at once."""

    @abstractmethod
    def step(self) -> bool:
        """After each of its steps. True: it is over."""

    def leave(self) -> None:  # noqa: B027
        """The script ends in the midst of it."""

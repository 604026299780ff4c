"""The one step in which FLOPs are counted, outside the timed window: counting slows it down."""

from __future__ import annotations

from vivace.measure.inside.counting.flops import FlopCount
from vivace.measure.inside.training import Training

__all__ = ["CountedStep"]


class CountedStep:
    """``number``: how many steps came before it."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.count: FlopCount | None = None
        self.number: int | None = None

    def begin(self) -> None:
        self.count = FlopCount(where=self._where, roots=list(self.training.roots))
        self.number = self.training.steps
        self.count.begin()

    def finish(self) -> None:
        assert self.count is not None
        self.count.finish()

    def forget(self) -> None:
        """It was of another kind than the steps that are measured."""
        self.count = None

    def _where(self) -> str:
        """What runs now, by the last mark: a root's forward with the loss after it, a backward, or something else."""
        recorder = self.training.recorder
        # An exchange with other ranks belongs to what it interrupts.
        code, _ns, _event, extra = next(mark for mark in reversed(recorder.marks) if mark[0] not in ("comm+", "comm-"))
        if code in ("bwd+", "bwd="):
            return "backward with graph" if recorder.backward_makes_graph else "backward"
        in_forward = code == "fwd+" or (code == "fwd-" and extra is not None and extra["grad"])
        return "forward" if in_forward and not recorder.evaluating else "elsewhere"

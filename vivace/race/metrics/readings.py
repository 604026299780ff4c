"""``Reading``: one value of the metric, when it came and where from; and what can be wrong with a metric."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vivace.errors import UserError

__all__ = ["MetricProblem", "Problem", "Reading", "Source"]


class Source(StrEnum):
    PRINTOUT = "printout"
    TENSORBOARD = "TensorBoard"
    CSV = "CSV"
    JSON_LINES = "JSON lines"
    CAPTURE = "capture"
    """vivace's own, from the model's outputs and the targets in the process."""


@dataclass(frozen=True)
class Reading:
    """``name`` and ``text``: as the script writes them. ``at_s``: since the command started.

    ``step`` and ``epoch``: as the script counts them, where it says so.
    """

    name: str
    value: float
    at_s: float
    source: Source
    step: int | None = None
    epoch: float | None = None
    text: str = ""


class Problem(StrEnum):
    AMBIGUOUS = "ambiguous"
    NEVER_SEEN = "never seen"
    NOT_A_NUMBER = "not a number"
    UNIT_JUMP = "unit jump"
    UNLIKE_TARGET = "unlike the target"
    """Printed in percent without a percent sign, and the target is a fraction."""


class MetricProblem(UserError):
    """What is wrong, with what was seen in the message. A NaN is a training's own fault; the rest is for the user."""

    def __init__(self, problem: Problem, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.problem = problem

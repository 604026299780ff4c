"""What a training is asked to reach: ``accuracy >= 0.905`` (a target) or ``min val_loss`` (a goal).

>>> Target.parse("val_loss <= 3.28").reached(3.2), Goal.parse("max top1").direction is Direction.MAX
(True, True)
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from vivace.errors import UserError
from vivace.race.metrics.names import MetricName

__all__ = ["Direction", "Goal", "Target", "Wanted"]

_TARGET = re.compile(r"\s*(?P<name>.+?)\s*(?P<operator>>=|<=|≥|≤|>|<|==|=)\s*(?P<value>\S+?)\s*(?P<percent>%?)\s*")
_GOAL = re.compile(r"\s*(?P<direction>min|max|minimi[sz]e|maximi[sz]e)\s+(?P<name>.+?)\s*", re.IGNORECASE)
_TARGET_HINT = "a name, >= or <=, and a number: 'accuracy >= 0.905', 'val_loss <= 3.28'"
_GOAL_HINT = "min or max, and a name: 'min val_loss', 'max accuracy'"


class Direction(StrEnum):
    MIN = "min"
    MAX = "max"

    def better(self, one: float, other: float) -> bool:
        return one < other if self is Direction.MIN else one > other


@dataclass(frozen=True)
class Wanted:
    """A metric as the user names it. ``literal`` (in double quotes): the printed name has exactly this text."""

    text: str
    literal: bool = False

    @classmethod
    def parse(cls, text: str) -> Wanted:
        text = text.strip()
        if len(text) > 2 and text[0] == text[-1] == '"':
            return cls(" ".join(text[1:-1].split()), literal=True)
        if not MetricName.of(text).words:
            raise UserError(f"{text!r} is not the name of a metric", hint="'accuracy', 'val_loss', '\"* Acc@1\"'")
        return cls(text)

    @property
    def name(self) -> MetricName:
        return MetricName.of(self.text)

    def __str__(self) -> str:
        return f'"{self.text}"' if self.literal else self.text


@dataclass(frozen=True)
class Goal:
    """Which way a metric is better."""

    metric: Wanted
    direction: Direction

    @classmethod
    def parse(cls, text: str) -> Goal:
        found = _GOAL.fullmatch(text)
        if found is None:
            raise UserError(f"{text!r} is not a goal", hint=_GOAL_HINT)
        return cls(Wanted.parse(found["name"]), Direction(found["direction"][:3].lower()))

    def __str__(self) -> str:
        return f"{self.direction} {self.metric}"


@dataclass(frozen=True)
class Target:
    """A value to reach; ``value`` is a fraction where it was written with a percent sign."""

    metric: Wanted
    direction: Direction
    value: float
    strict: bool = False

    @classmethod
    def parse(cls, text: str) -> Target:
        found = _TARGET.fullmatch(text)
        if found is None:
            raise UserError(f"{text!r} is not a target", hint=_TARGET_HINT)
        try:
            value = float(found["value"])
        except ValueError:
            raise UserError(f"{found['value']!r} in {text!r} is not a number", hint=_TARGET_HINT) from None
        if not math.isfinite(value):
            raise UserError(f"{text!r} can never be reached, or always is", hint=_TARGET_HINT)
        if found["operator"] in ("=", "=="):
            raise UserError(f"{text!r}: a metric hardly ever equals a number", hint=_TARGET_HINT)
        direction = Direction.MAX if found["operator"] in (">=", "≥", ">") else Direction.MIN
        value = value / 100 if found["percent"] else value
        return cls(Wanted.parse(found["name"]), direction, value, strict=found["operator"] in "<>")

    def reached(self, value: float) -> bool:
        """NaN never reaches anything."""
        return self.direction.better(value, self.value) or (value == self.value and not self.strict)

    def __str__(self) -> str:
        operator = (">" if self.direction is Direction.MAX else "<") + ("" if self.strict else "=")
        return f"{self.metric} {operator} {self.value:g}"

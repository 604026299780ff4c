"""``Space``: the parameters of a search and the values that each may take.

Pure data; ``written`` reads it from the command line and from files, ``engine`` hands it to Optuna.

>>> lr = Real("lr", 1e-4, 1.0, log=True)
>>> lr.middle, lr.grid(3), lr.text(0.01)
(0.01, (0.0001, 0.01, 1.0), '0.01')
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

from vivace.errors import UserError

__all__ = ["Choice", "Parameter", "Real", "Space", "Value", "Values", "Whole"]

Value = float | int | str
Values = Mapping[str, Value]
"""A configuration: one value for each parameter."""

_GRID_POINTS = 5  # of a continuous parameter


@dataclass(frozen=True)
class Real:
    """``log``: a factor counts, not a difference, as for learning rates."""

    name: str
    low: float
    high: float
    log: bool = False

    @property
    def middle(self) -> float:
        return _rounded(math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2)

    @property
    def size(self) -> int | None:
        """How many values it can take; None: without end."""
        return None

    def grid(self, points: int = _GRID_POINTS) -> tuple[float, ...]:
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        inner = [low + (high - low) * n / (points - 1) for n in range(1, points - 1)]
        return (self.low, *(_rounded(math.exp(at) if self.log else at) for at in inner), self.high)

    def draw(self, random: Random) -> float:
        if self.log:
            return min(self.high, max(self.low, math.exp(random.uniform(math.log(self.low), math.log(self.high)))))
        return random.uniform(self.low, self.high)

    def read(self, text: str) -> float:
        """A value as a user writes it; a ``UserError`` if it is none of this parameter."""
        return self._within(_number(self.name, text))

    def _within(self, value: float) -> float:
        if not self.low <= value <= self.high:
            raise UserError(f"{self.name}={value:g} is outside of {self}")
        return value

    def text(self, value: Value) -> str:
        """As it stands in the command: ``repr`` gives the shortest text that is read back as the same number."""
        return repr(float(value))

    def __str__(self) -> str:
        return f"{'log' if self.log else 'uniform'}({self.low:g},{self.high:g})"


@dataclass(frozen=True)
class Whole:
    """Whole numbers from ``low`` to ``high``, both included."""

    name: str
    low: int
    high: int
    step: int = 1
    log: bool = False

    @property
    def values(self) -> range:
        return range(self.low, self.high + 1, self.step)

    @property
    def middle(self) -> int:
        target = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        return self.low + self.step * min(round((target - self.low) / self.step), len(self.values) - 1)

    @property
    def size(self) -> int | None:
        return len(self.values)

    def grid(self, points: int = _GRID_POINTS) -> tuple[int, ...]:
        values = self.values
        if len(values) <= points:
            return tuple(values)
        wanted = Real(self.name, self.low, self.high, self.log).grid(points)
        return tuple(sorted({self.low + self.step * round((at - self.low) / self.step) for at in wanted}))

    def draw(self, random: Random) -> int:
        return random.choice(self.values)

    def read(self, text: str) -> int:
        number = _number(self.name, text)
        if number not in self.values:
            raise UserError(f"{self.name}={text} is outside of {self}")
        return int(number)

    def text(self, value: Value) -> str:
        return str(int(value))

    def __str__(self) -> str:
        step = f",{self.step}" if self.step != 1 else ""
        return f"{'logint' if self.log else 'int'}({self.low},{self.high}{step})"


@dataclass(frozen=True)
class Choice:
    """One of several words, which reach the command exactly as they were written."""

    name: str
    options: tuple[str, ...]

    @property
    def middle(self) -> str:
        """There is no middle of words: the first one, where people write their usual choice."""
        return self.options[0]

    @property
    def size(self) -> int | None:
        return len(self.options)

    def grid(self, points: int = _GRID_POINTS) -> tuple[str, ...]:
        return self.options

    def draw(self, random: Random) -> str:
        return random.choice(self.options)

    def read(self, text: str) -> str:
        if text in self.options:
            return text
        as_number = [option for option in self.options if _same_number(option, text)]
        if not as_number:
            raise UserError(f"{self.name}={text} is none of {self}")
        return as_number[0]

    def text(self, value: Value) -> str:
        return str(value)

    def __str__(self) -> str:
        quoted = (f'"{option}"' if "," in option else option for option in self.options)
        return f"choice({','.join(quoted)})"


Parameter = Real | Whole | Choice


@dataclass(frozen=True)
class Space:
    parameters: tuple[Parameter, ...]

    def __getitem__(self, name: str) -> Parameter:
        return next(parameter for parameter in self.parameters if parameter.name == name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def middle(self) -> dict[str, Value]:
        return {parameter.name: parameter.middle for parameter in self.parameters}

    @property
    def size(self) -> int | None:
        """How many configurations there are; None: without end."""
        sizes = [parameter.size for parameter in self.parameters]
        return math.prod(size for size in sizes if size is not None) if None not in sizes else None

    @property
    def grid_size(self) -> int:
        return math.prod(len(parameter.grid()) for parameter in self.parameters)

    def grid(self) -> Iterator[dict[str, Value]]:
        """Every combination of the parameters' grid points: all values of finite ones, five of continuous ones."""
        columns: list[Any] = [parameter.grid() for parameter in self.parameters]
        for values in product(*columns):
            yield dict(zip(self.names, values, strict=True))

    def every(self) -> Iterator[dict[str, Value]]:
        """All configurations of a finite space."""
        columns: list[Any] = [p.values if isinstance(p, Whole) else p.grid() for p in self.parameters]
        for values in product(*columns):
            yield dict(zip(self.names, values, strict=True))

    def texts(self, values: Values) -> dict[str, str]:
        """As the command gets them."""
        return {name: self[name].text(value) for name, value in values.items()}


def _rounded(value: float) -> float:
    """To 12 figures: the middle of 1e-4 and 1 is 0.01."""
    return float(f"{value:.12g}")


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{name}={text}: {text!r} is not a number") from None
    if not math.isfinite(value):
        raise UserError(f"{name}={text} is not a finite number")
    return value


def _same_number(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return False

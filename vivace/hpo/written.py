"""Reads a space as people write it: ``lr=log(1e-4,1)`` on the command line, or a TOML file.

>>> print(read_parameter("lr=log(1e-4, 1)"), read_parameter("wd=choice(0,1e-4)"), read_parameter("depth=int(2,8,2)"))
log(0.0001,1) choice(0,1e-4) int(2,8,2)
"""

from __future__ import annotations

import csv
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vivace.errors import UserError
from vivace.files import read_user_text
from vivace.hpo.space import Choice, Parameter, Real, Space, Value, Whole
from vivace.hpo.template import OWN_NAMES

__all__ = ["FIND", "KINDS", "Written", "read_defaults", "read_parameter", "read_space", "sought_in"]

KINDS = "log(1e-4,1), uniform(0,0.5), int(2,8), int(16,128,16), logint(1,1024), choice(adam,sgd)"
FIND = "find"
"""Instead of a range: a learning rate, whose range ``found_rate`` finds."""
_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_CALL = re.compile(r"\s*(?P<kind>\w+)\s*\((?P<inside>.*)\)\s*", re.DOTALL)
_NEXT = re.compile(r",(?=\s*[A-Za-z_][\w.]*\s*=)")  # a comma may also be part of a choice
_LARGEST_FILE = 2**20


@dataclass(frozen=True)
class Written:
    """A space with the values that the user's own command would have: one for each parameter, or none."""

    space: Space
    defaults: dict[str, Value] | None


def sought_in(parameters: Sequence[str], file: Path | None) -> list[str]:
    """The names of parameters that are written as ``find``: their range is yet to be found."""
    written = list(_tables(file)["param"].items()) if file is not None else []
    written += [(name.strip(), text) for name, _equals, text in (one.partition("=") for one in parameters)]
    return [name for name, text in written if isinstance(text, str) and text.strip() == FIND]


def read_space(
    parameters: Sequence[str], file: Path | None, defaults: Sequence[str], ranges: Mapping[str, str] | None = None
) -> Written:
    """The parameters of ``--param`` and of ``--space FILE`` together. ``ranges``: of those written as ``find``."""
    parameters = [_with_range(text, ranges or {}) for text in parameters]
    found: list[Parameter] = []
    texts = list(defaults)
    if file is not None:
        tables = _tables(file)
        found += [
            _of_toml(name, (ranges or {}).get(name, value) if value == FIND else value, file)
            for name, value in tables["param"].items()
        ]
        texts = [*(f"{name}={_word(value)}" for name, value in tables["default"].items()), *texts]
    found += [read_parameter(text) for text in parameters]
    if not found:
        raise UserError("there is nothing to search", hint="--param 'lr=log(1e-4,1)', or --space space.toml")
    names = [parameter.name for parameter in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"the parameter {twice} is given twice")
    space = Space(tuple(found))
    return Written(space, read_defaults(space, texts))


def _with_range(text: str, ranges: Mapping[str, str]) -> str:
    name, _equals, written = text.partition("=")
    return f"{name}={ranges[name.strip()]}" if written.strip() == FIND and name.strip() in ranges else text


def read_defaults(space: Space, texts: Sequence[str]) -> dict[str, Value] | None:
    """``--default lr=0.1 --default wd=0``, or with commas; a later one replaces an earlier one."""
    given: dict[str, Value] = {}
    for text in (part for whole in texts for part in _NEXT.split(whole) if part.strip()):
        name, equals, value = (word.strip() for word in text.partition("="))
        if not equals:
            raise UserError(f"--default {text.strip()!r} is not NAME=VALUE", hint="--default lr=0.1")
        if name not in space.names:
            raise UserError(f"--default {name}: there is no such parameter", hint=f"one of {', '.join(space.names)}")
        given[name] = space[name].read(value)
    if given and (missing := [name for name in space.names if name not in given]):
        raise UserError(
            f"--default says nothing about {', '.join(missing)}",
            hint=f"give one value for each parameter: {', '.join(f'{name}=…' for name in space.names)}",
        )
    return {name: given[name] for name in space.names} if given else None


def read_parameter(text: str) -> Parameter:
    name, equals, written = text.partition("=")
    if not equals:
        raise UserError(f"--param {text!r} is not NAME=RANGE", hint=f"--param 'lr=log(1e-4,1)'; ranges: {KINDS}")
    return _parameter(name.strip(), written)


def _parameter(name: str, written: str) -> Parameter:
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r} cannot be a parameter's name",
            hint="letters, digits, _ and dots between them: it stands in {braces}",
        )
    if name in OWN_NAMES:
        raise UserError(f"the name {name} is taken: {OWN_NAMES[name]}", hint="choose another name")
    found = _CALL.fullmatch(written)
    kind = found["kind"] if found else ""
    if found is None or kind not in _READERS:
        raise UserError(f"{name}={written.strip()} is not a range", hint=f"one of {KINDS}")
    return _READERS[kind](name, found["inside"])


def _real(name: str, inside: str, log: bool) -> Real:
    low, high = _numbers(name, inside, (2,))
    _check_order(name, low, high, log)
    return Real(name, low, high, log)


def _whole(name: str, inside: str, log: bool) -> Whole:
    numbers = _numbers(name, inside, (2,) if log else (2, 3))
    if not all(number == int(number) for number in numbers):
        raise UserError(f"{name}: {inside.strip()} must be whole numbers", hint="uniform(…) for others")
    low, high, step = (int(number) for number in [*numbers, 1][:3])
    _check_order(name, low, high, log)
    if step < 1 or step > high - low:
        raise UserError(f"{name}: a step of {step} does not fit between {low} and {high}")
    return Whole(name, low, low + (high - low) // step * step, step, log)


def _choice(name: str, inside: str) -> Choice:
    options = [word.strip() for row in csv.reader([inside], skipinitialspace=True) for word in row]
    return _of_options(name, options)


def _of_options(name: str, options: Sequence[str]) -> Choice:
    if len(options) < 2 or "" in options:
        raise UserError(f"{name}: a choice needs two options at least, and no empty ones", hint="choice(adam,sgd)")
    if len(set(options)) < len(options):
        raise UserError(f"{name}: an option is given twice in choice({','.join(options)})")
    return Choice(name, tuple(options))


_READERS: dict[str, Callable[[str, str], Parameter]] = {
    "log": lambda name, inside: _real(name, inside, log=True),
    "uniform": lambda name, inside: _real(name, inside, log=False),
    "int": lambda name, inside: _whole(name, inside, log=False),
    "logint": lambda name, inside: _whole(name, inside, log=True),
    "choice": _choice,
}


def _numbers(name: str, inside: str, counts: tuple[int, ...]) -> list[float]:
    words = [word.strip() for word in inside.split(",")]
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    if len(numbers) not in counts or not all(math.isfinite(number) for number in numbers):
        raise UserError(
            f"{name}: ({inside.strip()}) must be {' or '.join(map(str, counts))} numbers", hint=f"as in {KINDS}"
        )
    return numbers


def _check_order(name: str, low: float, high: float, log: bool) -> None:
    if not low < high:
        raise UserError(f"{name}: {low:g} is not below {high:g}", hint="the lower end comes first")
    if log and low <= 0:
        raise UserError(
            f"{name}: a logarithmic range must begin above 0, not at {low:g}",
            hint="log(1e-6,1), or choice(0,1e-4,5e-4) to have 0 among the values",
        )


def _tables(file: Path) -> Mapping[str, dict[str, Any]]:
    hint = '[param] lr = "log(1e-4,1)"; optimizer = ["adam", "sgd"]; [default] lr = 0.1'
    try:
        data = tomllib.loads(read_user_text(file, _LARGEST_FILE))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is not TOML: {error}", hint=hint) from None
    unknown = [key for key in data if key not in ("param", "default") or not isinstance(data[key], dict)]
    if unknown or "param" not in data:
        what = f"{unknown[0]!r} in {file} is not known" if unknown else f"{file} has no table [param]"
        raise UserError(what, hint=hint)
    return {"param": dict(_dotted(data["param"])), "default": dict(_dotted(data.get("default", {})))}


def _dotted(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """TOML reads ``optim.lr = …`` as a table in a table."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _of_toml(name: str, value: Any, file: Path) -> Parameter:
    if isinstance(value, list):
        _parameter(name, "uniform(0,1)")  # the name's own checks
        return _of_options(name, [_word(one) for one in value])
    if not isinstance(value, str):
        raise UserError(f"{name} in {file} must be a text or a list", hint=f'"log(1e-4,1)" or ["adam", "sgd"]; {KINDS}')
    return _parameter(name, value)


def _word(value: Any) -> str:
    """Of TOML: ``true`` stays ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)

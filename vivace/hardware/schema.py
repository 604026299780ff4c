"""From a TOML table to a frozen dataclass, or a ``UserError`` that names the file, the entry and the key.

Standard library only (see ``specs``); touches nothing; called by ``catalogue``. The dataclass is the schema:
its field names are the keys, its type hints the types. Every number must be above zero: an unknown value is
left out.
"""

from __future__ import annotations

import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, TypeVar

from vivace.errors import UserError

__all__ = ["Place", "build", "did_you_mean"]

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """Where a value stands, for error messages."""

    file: str
    entry: str

    def error(self, key: str, problem: str, hint: str | None = None) -> UserError:
        return UserError(f"{self.file}: [{self.entry}]: {key}: {problem}", hint)

    def under(self, key: str) -> Place:
        return Place(self.file, f"{self.entry}.{key}")


def build(cls: type[T], table: Mapping[str, Any], place: Place, given: Mapping[str, Any] | None = None) -> T:
    """``table`` as a ``cls``. ``given`` holds the fields that the caller fills in and a file may not set."""
    given = dict(given or {})
    hints = typing.get_type_hints(cls)
    schema = {item.name: item for item in fields(typing.cast(Any, cls))}
    allowed = [name for name in schema if name not in given]
    values = {key: _checked(value, _hint(hints, allowed, key, place), key, place) for key, value in table.items()}
    for name in allowed:
        optional = schema[name].default is not MISSING or schema[name].default_factory is not MISSING
        if name not in values and not optional:
            raise place.error(name, "is missing", hint=f"add {name} = {_example(hints[name])}")
    return cls(**values, **given)


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint with the names nearest to ``word``, or None when nothing is near."""
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else None


def _hint(hints: Mapping[str, Any], allowed: list[str], key: str, place: Place) -> Any:
    if key not in allowed:
        raise place.error(key, "unknown key", did_you_mean(key, allowed) or f"known keys: {', '.join(allowed)}")
    return hints[key]


def _checked(value: Any, hint: Any, key: str, place: Place) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        # Only "X | None" occurs, and TOML has no None: a key that is there has the type X.
        return _checked(value, next(part for part in arguments if part is not type(None)), key, place)
    if origin is tuple:
        return _checked_list(value, arguments[0], key, place)
    if origin is Mapping:
        return _checked_mapping(value, arguments[1], key, place)
    return _checked_scalar(value, hint, key, place)


def _checked_list(value: Any, hint: Any, key: str, place: Place) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise place.error(key, f"must be a list, not {_kind(value)}", hint=f"{key} = [{_example(hint)}]")
    if is_dataclass(hint) and isinstance(hint, type):
        tables = [_checked_table(item, f"{key}[{i}]", place) for i, item in enumerate(value)]
        return tuple(build(hint, item, place.under(f"{key}[{i}]")) for i, item in enumerate(tables))
    return tuple(_checked(item, hint, f"{key}[{i}]", place) for i, item in enumerate(value))


def _checked_mapping(value: Any, hint: Any, key: str, place: Place) -> dict[str, Any]:
    table = _checked_table(value, key, place)
    return {name: _checked(item, hint, f"{key}.{name}", place) for name, item in table.items()}


def _checked_table(value: Any, key: str, place: Place) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise place.error(key, f"must be a table, not {_kind(value)}")
    return value


def _checked_scalar(value: Any, hint: Any, key: str, place: Place) -> Any:
    if hint in (int, float):
        return _checked_number(value, hint, key, place)
    if not isinstance(value, hint):
        wanted = {str: "text in quotes", bool: "true or false"}.get(hint, hint.__name__)
        raise place.error(key, f"must be {wanted}, not {_kind(value)}", hint=f"{key} = {_example(hint)}")
    if value == "":
        raise place.error(key, "is empty", hint=f"leave {key} out when it is not known")
    if isinstance(value, str) and not value.isprintable():  # it may become a line of a job's script
        raise place.error(key, f"must be one line of printable text, not {value!r}")
    return value


def _checked_number(value: Any, hint: Any, key: str, place: Place) -> int | float:
    wrong_type = isinstance(value, bool) or not isinstance(value, int if hint is int else int | float)
    if wrong_type:
        wanted = "a whole number" if hint is int else "a number"
        raise place.error(key, f"must be {wanted}, not {_kind(value)}", hint=f"{key} = {_example(hint)}")
    if not math.isfinite(value) or value <= 0:
        raise place.error(key, f"must be above zero, not {value}", hint=f"leave {key} out when it is not known")
    return value if hint is int else float(value)


def _kind(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return f"{str(value).lower() if isinstance(value, bool) else repr(value)}"


def _example(hint: Any) -> str:
    if typing.get_origin(hint) is tuple:
        return f"[{_example(typing.get_args(hint)[0])}]"
    return {int: "8", float: "1.5", bool: "true", str: '"…"'}.get(hint, "…")

"""From JSON to the protocol's dataclasses. The command decodes; it runs Python 3.11 or later, unlike the process.

Checks shapes and plain types, and names the field that is wrong. A field that is absent gets its default.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from typing import Any, TypeVar

from vivace.protocol.version import ProtocolError

__all__ = ["decode"]

T = TypeVar("T")
_NONE = type(None)
_UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))


def decode(kind: type[T], value: Any) -> T:
    """``value`` as JSON gave it, as an instance of the dataclass ``kind``; or ``ProtocolError``."""
    decoded: T = _decode(kind, value, kind.__name__)
    return decoded


def _decode(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in _UNIONS:
        return _decode_optional(arguments, value, where)
    if origin is list:
        return [_decode(arguments[0], item, f"{where}[{n}]") for n, item in enumerate(_checked(list, value, where))]
    if origin is dict:
        items = _checked(dict, value, where).items()
        return {name: _decode(arguments[1], item, f"{where}.{name}") for name, item in items}
    if issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            raise ProtocolError(f"{where} is {value!r}, which is no {kind.__name__}") from None
    return _checked(kind, value, where)


def _decode_dataclass(kind: Any, value: Any, where: str) -> Any:
    known = _types_of(kind)
    values = _checked(dict, value, where)
    if unknown := sorted(values.keys() - known.keys()):
        raise ProtocolError(f"{where} has no {', '.join(unknown)}")
    try:
        return kind(**{name: _decode(known[name], item, f"{where}.{name}") for name, item in values.items()})
    except TypeError as error:  # a field without a default is absent
        raise ProtocolError(f"{where}: {error}") from None


@functools.cache
def _types_of(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _decode_optional(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and _NONE in arguments:
        return None
    (kind,) = (argument for argument in arguments if argument is not _NONE)
    return _decode(kind, value, where)


def _checked(kind: type, value: Any, where: str) -> Any:
    """JSON does not tell 2 from 2.0, and True is an int to Python."""
    allowed = (int, float) if kind in (int, float) else kind
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise ProtocolError(f"{where} is {value!r}, which is no {kind.__name__}")
    return value

"""From a recipe's name or file to a ``Recipe``: TOML, ``extends``, ``--set``. Every mistake is named by its key.

Called by ``vivace train`` and ``vivace recipe``. Needs no torch.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from vivace.errors import UserError
from vivace.files import read_user_text
from vivace.recipes.recipe import Recipe
from vivace.records.base import Part
from vivace.train.settings import MODELS

__all__ = ["as_toml", "described", "read_recipe", "shipped_names", "shipped_text"]

_MOST_BYTES = 2**20
_MOST_PARENTS = 8
_HIDDEN = ("kind", "schema_version")  # of the record itself: no settings


def shipped_names() -> list[str]:
    """The recipes that come with vivace."""
    folder = resources.files("vivace.recipes") / "shipped"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def shipped_text(name: str) -> str:
    return (resources.files("vivace.recipes") / "shipped" / f"{name}.toml").read_text(encoding="utf-8")


def read_recipe(name: str, changes: Sequence[str] = ()) -> Recipe:
    """``cifar10-speed`` or ``my/recipe.toml``, with changes such as ``optim.lr=0.5`` on top."""
    fields = {"name": _short(name), **_with_parents(name, None, [])}
    for change in changes:
        _put(fields, change)
    return validated(fields, name)


def validated(fields: dict[str, Any], source: str) -> Recipe:
    try:
        return Recipe.model_validate(_cleared(fields, Recipe))
    except ValidationError as error:
        raise _first_mistake(error, source) from None


def _short(name: str) -> str:
    return Path(name).name.removesuffix(".toml").removesuffix(".json") or "recipe"


# -- files ------------------------------------------------------------------------------------------------------------


def _with_parents(name: str, beside: Path | None, seen: list[str]) -> dict[str, Any]:
    """The table of a recipe over that of the recipe it extends. ``beside``: where the one that names it lies."""
    text, path = _text_of(name, beside)
    label = str(path or name)
    if label in seen or len(seen) >= _MOST_PARENTS:
        raise UserError(f"extends goes round in a circle: {' → '.join([*seen, label])}")
    table = _parsed(text, label)
    parent = table.pop("extends", None)
    if parent is None:
        return table
    if not isinstance(parent, str):
        raise UserError(f"{label}: extends is one name or file, not {parent!r}")
    return _over(table, _with_parents(parent, path.parent if path else None, [*seen, label]))


def _text_of(name: str, beside: Path | None) -> tuple[str, Path | None]:
    path = Path(name) if beside is None else beside / name
    if not name.endswith((".toml", ".json")):
        if name in shipped_names():
            return shipped_text(name), None
        near = difflib.get_close_matches(name, [*shipped_names(), *MODELS], 1)
        known = f"one of {', '.join(shipped_names())}, or a file: my.toml; models are {', '.join(MODELS)}"
        raise UserError(f"no recipe or model called {name!r}", hint=f"did you mean {near[0]}?" if near else known)
    try:
        return read_user_text(path, _MOST_BYTES), path
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"{path} cannot be read: {reason}", hint="vivace recipe list") from None


def _parsed(text: str, label: str) -> dict[str, Any]:
    try:
        if label.endswith(".json"):
            table = json.loads(text)
            return {key: value for key, value in table.items() if key not in _HIDDEN}
        return tomllib.loads(text)
    except (ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{label} is not TOML: {error}") from None


def _over(table: dict[str, Any], below: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in table.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _over(value, merged[key]) if both else value
    return merged


def _put(fields: dict[str, Any], change: str) -> None:
    name, equals, text = change.partition("=")
    if not equals or not name.strip():
        raise UserError(f"{change!r} sets nothing", hint="--set optim.lr=0.5")
    *path, last = name.strip().split(".")
    here = fields
    for step in path:
        inner = here.setdefault(step, {})
        if not isinstance(inner, dict):
            raise UserError(f"--set {change}: {step} is a value, it has nothing inside")
        here = inner
    here[last] = _value(text.strip())


def _value(text: str) -> Any:
    """As in TOML; what is not (``resnet50``, ``37ep``) is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _cleared(fields: dict[str, Any], kind: type[BaseModel]) -> dict[str, Any]:
    """Without what is ``"none"`` where a setting may be absent: TOML has no word for it, and a child may need one."""
    kept = {}
    for name, value in fields.items():
        annotation = kind.model_fields[name].annotation if name in kind.model_fields else None
        if value == "none" and type(None) in get_args(annotation):
            continue
        inner = isinstance(annotation, type) and issubclass(annotation, Part) and isinstance(value, dict)
        kept[name] = _cleared(value, annotation) if inner else value  # type: ignore[arg-type]
    return kept


# -- mistakes ---------------------------------------------------------------------------------------------------------


def _first_mistake(error: ValidationError, source: str) -> UserError:
    mistakes = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # a wrong name explains more
    first = mistakes[0]
    path = [str(step) for step in first["loc"]]
    key = ".".join(path)
    if first["type"] == "extra_forbidden":
        known = _names_in(path[:-1])
        near = difflib.get_close_matches(path[-1], known, 1, cutoff=0.5)
        hint = f"did you mean {'.'.join([*path[:-1], near[0]])}? " if near else ""
        return UserError(f"{source}: there is no setting {key}", hint=f"{hint}allowed: {', '.join(known)}")
    said = first["msg"].removeprefix("Value error, ")
    value = "" if first["type"] in ("missing", "value_error") else f" (it is {first['input']!r})"
    return UserError(
        f"{source}: {key}: {said[:1].lower()}{said[1:]}{value}", hint=f"--set {key}=…, or {key} in the file"
    )


def _names_in(path: Sequence[str]) -> list[str]:
    kind: Any = Recipe
    for step in path:
        if step.isdigit():
            continue
        inner = kind.model_fields[step].annotation
        kind = next(
            (each for each in (inner, *get_args(inner)) if isinstance(each, type) and issubclass(each, Part)), kind
        )
    return [name for name in kind.model_fields if path or name not in _HIDDEN]


# -- showing ----------------------------------------------------------------------------------------------------------


def described(model: type[BaseModel] = Recipe, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Every setting: its name, default and description. For ``--settings``."""
    for name, field in model.model_fields.items():
        if not prefix and name in _HIDDEN:
            continue
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            yield from described(type(default), f"{prefix}{name}.")
        else:
            shown = json.dumps(default, default=str) if default is not None else "none"
            yield f"{prefix}{name}", shown, field.description or ""


def as_toml(recipe: Recipe, everything: bool = False) -> str:
    """One dotted key a line, which is TOML again; without ``everything`` only what is not the default."""
    usual = Recipe().model_dump(mode="json")
    return "".join(_lines(recipe.model_dump(mode="json"), usual, "", everything))


def _lines(fields: dict[str, Any], usual: dict[str, Any], prefix: str, everything: bool) -> Iterator[str]:
    for name, value in fields.items():
        if (not prefix and name in _HIDDEN) or value is None:
            continue
        if isinstance(value, dict) and isinstance(usual.get(name), dict) and usual[name]:
            yield from _lines(value, usual[name], f"{prefix}{name}.", everything)
        elif everything or value != usual.get(name):
            yield f"{prefix}{name} = {_toml(value)}\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items() if each is not None)
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(each) for each in value)}]"
    return json.dumps(value, ensure_ascii=False)

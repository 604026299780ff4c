"""The planner's constants, read from ``data/constants.toml`` (where each has its source).

Reads that one file; called by the time and memory models. Tests and the fit replace values with ``override``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["cached_until_override", "constants", "family_values", "fitted_files", "mesh_share", "override"]

FILE = Path(__file__).parents[1] / "data" / "constants.toml"
_changed: dict[str, Any] = {}
_caches: list[Callable[[], None]] = []
Answer = TypeVar("Answer")


@lru_cache(maxsize=1)
def _file() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def constants(section: str) -> Mapping[str, Any]:
    """One table of the file, with the overrides in force."""
    table: Any = _file()
    for step in section.split("."):
        table = table[step]
    changed = {k.removeprefix(section + "."): v for k, v in _changed.items() if k.startswith(section + ".")}
    return {**table, **changed} if changed else table


def family_values(family: str) -> Mapping[str, Any]:
    known = _file()["family"]
    return constants(f"family.{family if family in known else 'default'}")


def fitted_files() -> tuple[str, ...]:
    return tuple(_file()["fitted"]["files"])


def mesh_share(size: int, gpus_per_node: int) -> float:
    """Share of a V100's links that a ring of ``size`` GPUs of one node can use."""
    table = constants("links")["mesh_four" if gpus_per_node == 4 else "mesh_eight"]
    return float(table[min(size, len(table) - 1)])


def cached_until_override(function: Callable[[str], Answer]) -> Callable[[str], Answer]:
    """Remember what was made of constants, until they change."""
    cached = lru_cache(maxsize=None)(function)
    _caches.append(cached.cache_clear)
    return cached


def _clear_caches() -> None:
    for clear in _caches:
        clear()


@contextmanager
def override(**values: Any) -> Iterator[None]:
    """Other values for the time of a ``with`` block; keys are paths with ``__`` for dots."""
    before = dict(_changed)
    _changed.update({key.replace("__", "."): value for key, value in values.items()})
    _clear_caches()
    try:
        yield
    finally:
        _changed.clear()
        _changed.update(before)
        _clear_caches()

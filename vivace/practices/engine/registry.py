"""Finds the practices: every file of ``vivace/practices`` is one. Knows none of them by name."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable, Sequence
from functools import cache

import vivace.practices
from vivace.errors import UserError
from vivace.practices.engine.practice import Practice

__all__ = ["all_practices", "environment_of", "get_practice", "is_probe", "parse_words", "split_word"]


@cache
def names() -> tuple[str, ...]:
    return tuple(sorted(m.name for m in pkgutil.iter_modules(vivace.practices.__path__) if not m.ispkg))


@cache
def all_practices() -> tuple[Practice, ...]:
    return tuple(get_practice(name) for name in names())


def get_practice(name: str) -> Practice:
    """The practice of that name; imports its file only."""
    if name not in names():
        close = difflib.get_close_matches(name, names(), n=1)
        raise UserError(
            f"there is no practice named {name!r}",
            hint=f"did you mean {close[0]}?" if close else "`vivace practices` lists them",
        )
    practice = importlib.import_module(f"vivace.practices.{name}").PRACTICE
    assert isinstance(practice, Practice)
    return practice


def is_probe(word: str) -> bool:
    """A differential run (``engine/probes.py``), told by its name: asking must not import torch."""
    return word.startswith("probe:")


def split_word(word: str) -> tuple[str, str | None]:
    """
    >>> split_word("compile=reduce-overhead")
    ('compile', 'reduce-overhead')
    """
    name, equals, argument = word.partition("=")
    return name.strip().replace("-", "_"), argument.strip() if equals else None


def parse_words(words: str | Iterable[str]) -> tuple[str, ...]:
    """Checked words for ``--with``, in the order in which they are applied. Raises ``UserError`` for what is wrong."""
    parts = words.split(",") if isinstance(words, str) else words
    wanted: dict[str, str | None] = {}
    for word in parts:
        if not word.strip():
            continue
        name, argument = split_word(word)
        practice = get_practice(name)
        if practice.change is None:
            raise UserError(
                f"{name} cannot be applied from outside: {practice.title}",
                hint=f"`vivace practices {name}` shows the lines to change",
            )
        if argument is not None and practice.argument is None:
            raise UserError(f"{name} takes no argument, but {word!r} gives one")
        if name in wanted and wanted[name] != argument:
            raise UserError(f"{name} is asked for twice, with different arguments")
        try:
            practice.change(argument)
        except ValueError as error:
            raise UserError(
                f"{name}: {error}", hint=f"{name}={practice.argument}" if practice.argument else None
            ) from None
        wanted[name] = argument
    _check_exclusions(tuple(wanted))
    ordered = sorted(wanted, key=lambda name: (get_practice(name).order, name))
    return tuple(name if wanted[name] is None else f"{name}={wanted[name]}" for name in ordered)


def _check_exclusions(chosen: Sequence[str]) -> None:
    for name in chosen:
        for other in get_practice(name).excludes:
            if other in chosen:
                raise UserError(f"{name} and {other} exclude each other", hint="keep one of them")


def environment_of(words: Sequence[str]) -> dict[str, str]:
    """The variables that practices want the command to start with."""
    environment: dict[str, str] = {}
    for word in words:
        if is_probe(word):
            continue
        name, argument = split_word(word)
        change = get_practice(name).change
        if change is not None:
            environment.update(change(argument).environment())
    return environment

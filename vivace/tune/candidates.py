"""What to try, and in which order: what findings promise, what fits together, what takes long last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vivace.practices.engine.registry import all_practices, get_practice, split_word
from vivace.records.finding import Finding, Risk
from vivace.records.measurement import Measurement
from vivace.tune.diagnosis import SMALLEST_WORTH

__all__ = ["alternatives", "candidates", "combined", "proposals", "risk_of", "without"]


def candidates(findings: Sequence[Finding], measurement: Measurement, allowed: Sequence[Risk]) -> list[str]:
    """Words to try one after the other: the most likely to pay first, what compiles last."""
    paying = [f for f in findings if f.worth >= SMALLEST_WORTH]  # not what only makes room
    words = [f.setting or f.practice for f in paying if f.applies and f.risk in allowed]
    for practice in all_practices():
        if practice.worth_trying is not None and Risk(practice.risk) in allowed:
            words += practice.worth_trying(measurement)
    unique = list(dict.fromkeys(words))
    return sorted(unique, key=lambda word: get_practice(split_word(word)[0]).try_last)


def alternatives(findings: Iterable[Finding], word: str) -> tuple[str, ...]:
    """Other words of the same practice that its finding names (``compile=reduce-overhead``)."""
    name = split_word(word)[0]
    return tuple(other for other in next((f.also_try for f in findings if f.practice == name), ()) if other != word)


def combined(current: Sequence[str], word: str) -> tuple[str, ...] | None:
    """The set with this word in place of the same practice's other arguments; None when another excludes it."""
    name = split_word(word)[0]
    kept = [w for w in current if split_word(w)[0] != name]
    practice = get_practice(name)
    for other in kept:
        other_name = split_word(other)[0]
        if other_name in practice.excludes or name in get_practice(other_name).excludes:
            return None
    return ordered([*kept, word])


def without(current: Sequence[str], word: str) -> tuple[str, ...]:
    return tuple(w for w in current if w != word)


def ordered(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(words, key=lambda w: (get_practice(split_word(w)[0]).order, w)))


def risk_of(word: str) -> Risk:
    return Risk(get_practice(split_word(word)[0]).risk)


def proposals(findings: Sequence[Finding], chosen: Sequence[str], allowed: Sequence[Risk]) -> tuple[Finding, ...]:
    """Findings that only a person can act on: by hand, or with another risk than was allowed."""
    names = {split_word(word)[0] for word in chosen}
    return tuple(f for f in findings if f.practice not in names and (not f.applies or f.risk not in allowed))

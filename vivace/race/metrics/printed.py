"""Finds what a line of a printout says: names with their values, and the step or epoch it is about.

Public scripts print metrics in many styles; ``tests/race/metrics/test_printed.py`` has a table of them. The way is the
same for all: find the numbers, and take the words before each as its name.

>>> [(pair.text, pair.value) for pair in parse_line("Test set: Average loss: 0.0563, Accuracy: 9812/10000 (98%)").pairs]
[('Test set: Average loss', 0.0563), ('Test: Accuracy', 0.9812)]
>>> parse_line("step 250: train loss 1.1, val loss 1.4").step
250
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from vivace.race.metrics.names import MetricName, split_word

__all__ = ["LineKind", "Pair", "ParsedLine", "parse_line", "parse_object"]

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)"
_VALUE = re.compile(
    rf"""(?<![\w@.+±'\\-])(?<!\d:)                         # no part of a word, of acc@1, of top-1 or of 0.5±0.1
    (?P<number>{_NUMBER})(?![\w@]|\.\w|-\d|:\d)          # no 12ms, 1st, 10:30:05, 1.2.3 or 2026-11-18
    (?:\s?/\s?(?P<of>\d+)(?:\s*(?:=|\()?\s*[\d.]+\s?%\)?)?(?!\w))?  # 9812/10000 (98%)
    \s?(?P<percent>%)?
    (?:\s*\(\s*(?P<average>{_NUMBER})\s*\))?             # a meter's running average: 76.10 ( 75.02)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_LOG_PREFIX = re.compile(
    r"""^\s*(?:
      \[?\d{4}[-/]\d{2}[-/]\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?\]?[\s,|-]*
    | \[?\d{2}:\d{2}:\d{2}(?:[.,]\d+)?\]?[\s|-]+
    | \[?(?:rank|default|gpu|cuda:?)\s?\d+\]?\s*:?\s+
    | \[?(?:DEBUG|INFO|WARNING|NOTICE)\]?(?::[\w.]+:|\s*[:|-]*\s*)
    | \[?[\w./]+\.py(?::\d+)?\]?\s*[:|-]*\s*
    )+""",
    re.VERBOSE | re.IGNORECASE,
)
_EDGES = " \t:=|│┃,;-–—>~*#'\"`()[]{}<"
_OPENERS = re.compile(r"(?:\b(?:torch\.)?tensor|\b(?:np\.)?(?:array|float\d*)|\bis|\bwas)?[\s(\['\"]*$")
_PHRASES = re.compile(r"[,;|│┃\t()\[\]{}]|\s-+\s|\s{3,}|:\s|\.\s|>>+")
_UNFINISHED = re.compile(r"\b(?:the|of|on|in|for|after|over|at|with|all|first|last)\s*$", re.IGNORECASE)
_STEPS = frozenset({"step", "steps", "iter", "iteration", "iterations", "it", "batch", "update", "updates"})
_BEFORE = frozenset({"end", "of", "global", "current", "num", "total", "number"})
_EPOCHS = frozenset({"epoch", "epochs", "ep"})
_TOP = re.compile(r"\btop (?=[15]\b(?!\.))", re.IGNORECASE)
_LONGEST_NAME = 80
_DEEPEST = 3


class LineKind(StrEnum):
    """One name on lines of two kinds is two metrics: of a batch, and of all the data."""

    PLAIN = "plain"
    STEP = "step"
    """It says which step or batch it is about, or is a progress bar."""
    SUMMARY = "summary"
    """It begins with ``*``, as summaries of PyTorch's ImageNet example do."""


@dataclass(frozen=True)
class Pair:
    """``text``: the name as it is printed, with what its line is about; ``kind``: of its line.

    A value with a percent sign is kept as a fraction.
    """

    name: MetricName
    text: str
    value: float
    kind: LineKind = LineKind.PLAIN


@dataclass(frozen=True)
class ParsedLine:
    pairs: tuple[Pair, ...] = ()
    step: int | None = None
    epoch: float | None = None


def parse_line(line: str) -> ParsedLine:
    """What ``line`` (whole, without colours) says."""
    brace = line.find("{")
    if brace >= 0 and line.endswith("}"):
        try:
            data = json.loads(line[brace:])
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict):
            return parse_object(data, split_word(_LOG_PREFIX.sub("", line[:brace])))
    return _parse_words(_LOG_PREFIX.sub("", line))


def parse_object(data: dict[str, Any], split: frozenset[str] = frozenset()) -> ParsedLine:
    """The numbers of a JSON object; names of nested ones are joined with a slash."""
    numbers = dict(_numbers(data, "", _DEEPEST))
    counters = {counted: value for name, value in numbers.items() if (counted := _counted(name))}
    pairs = [
        Pair(MetricName.of(name).within(split), _labelled(name, split), value)
        for name, value in numbers.items()
        if not _counted(name)
    ]
    step = next((value for name, value in counters.items() if name in _STEPS), None)
    epoch = next((value for name, value in counters.items() if name in _EPOCHS), None)
    return ParsedLine(tuple(pairs), _whole(step), epoch)


def _numbers(data: dict[str, Any], prefix: str, deeper: int) -> Iterator[tuple[str, float]]:
    for key, value in data.items():
        name = f"{prefix}{key}"[-_LONGEST_NAME:]
        if isinstance(value, dict) and deeper > 1:
            yield from _numbers(value, f"{name}/", deeper - 1)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield name, float(value)


def _parse_words(line: str) -> ParsedLine:
    line = _TOP.sub("top-", line)
    pairs: list[Pair] = []
    step: float | None = None
    epoch: float | None = None
    kind = LineKind.SUMMARY if line.startswith("*") else LineKind.PLAIN
    named_from = 0  # where the words of the next name begin
    for found in _VALUE.finditer(line):
        words = line[named_from : found.start()]
        if _UNFINISHED.search(words):  # "Accuracy of the network on the 10000 test images: 54 %"
            continue
        named_from = found.end()
        phrase = _phrase(words)
        counted = _counted(phrase)
        if counted in _EPOCHS:
            epoch = float(found["number"]) if epoch is None else epoch
        elif counted in _STEPS:
            step = float(found["number"]) if step is None else step
            kind = LineKind.STEP
        elif phrase and _is_value(phrase, found):
            pairs.append(_pair(line, words, phrase, found, kind))
        elif found["of"] is not None and not pairs:  # Epoch: [0][10/5005], or a progress bar
            step = float(found["number"]) if step is None and epoch is not None else step
            kind = LineKind.STEP
    return ParsedLine(tuple(pairs), _whole(step), epoch)


def _pair(line: str, words: str, phrase: str, found: re.Match[str], kind: LineKind) -> Pair:
    """Its own words say which data it is about; else the nearest such word before it does."""
    value = float(found["number"])
    if found["of"] is not None:
        value /= float(found["of"])
    elif found["percent"] is not None:
        value /= 100
    elif found["average"] is not None and kind is not LineKind.SUMMARY:
        value = float(found["average"])
    name = MetricName.of(phrase)
    split = name.split or split_word(words) or split_word(line[: found.start()])
    whole = " ".join(words.strip(_EDGES).split())
    own_line = bool(split) and not name.split and split_word(whole) == split and len(whole) <= _LONGEST_NAME // 2
    label = _labelled(whole if own_line else phrase, split)
    return Pair(name.within(split), f"* {label}" if kind is LineKind.SUMMARY else label, value, kind)


def _phrase(words: str) -> str:
    """The name right before a value: the last phrase of ``words``."""
    words = _OPENERS.sub("", words.rstrip(_EDGES)).rstrip(_EDGES)
    return _PHRASES.split(words)[-1].strip(_EDGES)[-_LONGEST_NAME:]


def _is_value(phrase: str, found: re.Match[str]) -> bool:
    """``9812/10000`` is a value where it is an accuracy or a percentage follows; else it is how far something is."""
    if not re.search(r"[^\W\d_]", phrase):
        return False
    if found["of"] is None:
        return True
    return float(found["of"]) > 0 and ("%" in found[0] or MetricName.of(phrase).is_ratio)


def _counted(phrase: str) -> str:
    """``train epoch`` and ``end of epoch`` count what ``epoch`` does.

    >>> _counted("Train Epoch"), _counted("global_step"), _counted("loss")
    ('epoch', 'step', '')
    """
    words = phrase.lower().replace("_", " ").split()
    if words and words[-1] in _STEPS | _EPOCHS and all(split_word(word) or word in _BEFORE for word in words[:-1]):
        return words[-1]
    return ""


def _labelled(text: str, split: frozenset[str]) -> str:
    """With the data it is about, if the words themselves do not say so."""
    return f"{next(iter(split)).capitalize()}: {text}" if split and not split_word(text) else text


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and math.isfinite(value) and value == int(value) else None

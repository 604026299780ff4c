"""``MetricReader``: from lines and values as they come to readings of the one metric that is wanted.

It follows one name from one kind of line. As soon as the wanted name could mean two, it stops with an error that shows
both. So does a NaN, and a value whose unit changes. Used by races and by hyper-parameter search.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from vivace.errors import UserError
from vivace.race.metrics.columns import Columns
from vivace.race.metrics.names import MetricName, choose
from vivace.race.metrics.printed import LineKind, Pair, ParsedLine, parse_line
from vivace.race.metrics.readings import MetricProblem, Problem, Reading, Source
from vivace.race.targets import Wanted

__all__ = ["MetricReader", "compiled_pattern"]

_MOST_NAMES = 500
_SHOWN_NAMES = 8
_SHOWN_TEXT = 160
_JUMPS = (50.0, 200.0)
"""A fraction that becomes a percentage grows a hundredfold. So may the accuracy of an untrained model, from 0.001."""
_SMALLEST_BEFORE_JUMP = 0.2
_SURELY_PERCENT = 1.5
_PATIENCE_S = 10.0  # once a name has two meanings: more of them may come, and the error should show all

_Key = tuple[MetricName, LineKind]


@dataclass
class _Seen:
    pair: Pair
    text: str
    count: int = 0
    only_repeats: bool = True
    """Every value was the last one of the same name on another kind of line: "test loss 2.2 is the best so far"."""


class MetricReader:
    """Feed it what the command prints and writes, in the order in which it comes.

    ``pattern``: a regular expression with one group, instead of the name. ``expected``: the target's value, to notice
    that it is in another unit than the readings.
    """

    def __init__(self, wanted: Wanted, pattern: str | None = None, expected: float | None = None) -> None:
        self.wanted, self.expected = wanted, expected
        self.last: Reading | None = None
        self._pattern = compiled_pattern(pattern) if pattern is not None else None
        self._columns = Columns()
        self._seen: dict[_Key, _Seen] = {}
        self._followed: _Key | None = None
        self._new_names = False
        self._ambiguous_since: float | None = None

    def read_line(self, line: str, at_s: float) -> Reading | None:
        """A line of the printout. Raises ``MetricProblem``."""
        if self._pattern is not None:
            return self._by_pattern(line, at_s)
        return self.read(self._columns.read(line) or parse_line(line), at_s, Source.PRINTOUT, line)

    def read(self, parsed: ParsedLine, at_s: float, source: Source, text: str) -> Reading | None:
        """Named values of any source, ``text`` to show where they come from. Raises ``MetricProblem``."""
        for pair in parsed.pairs:
            self._note(pair, text)
        if self._new_names:
            self._follow(at_s)
        if self._ambiguous_since is not None:
            if at_s - self._ambiguous_since > _PATIENCE_S:
                self.finish()
            return None
        key = self._followed
        found = next((pair for pair in reversed(parsed.pairs) if (pair.name, pair.kind) == key), None)
        if found is None:
            return None
        reading = Reading(found.text, found.value, at_s, source, parsed.step, parsed.epoch, _short(text))
        return self._checked(found, reading)

    def finish(self) -> None:
        """The command has ended. Raises ``MetricProblem`` if the name has two meanings."""
        keys = self._meant()
        if len(keys) > 1:
            raise MetricProblem(
                Problem.AMBIGUOUS,
                f"{self.wanted} may mean {len(keys)} metrics:\n{self._listed([self._seen[key] for key in keys])}",
                hint="name one as it is listed, quotes included ('\"Validation Accuracy\" >= 0.9'), or give --pattern",
            )

    def never_seen(self) -> MetricProblem:
        """What to say when the command has ended and the metric never came."""
        wanted = f"the pattern {self._pattern.pattern!r}" if self._pattern is not None else f"the metric {self.wanted}"
        seen = self._listed(list(self._seen.values())) or "  nothing with a name and a number"
        return MetricProblem(
            Problem.NEVER_SEEN,
            f"{wanted} never appeared; seen were:\n{seen}",
            hint="name one of them, give --pattern 'acc: ([0-9.]+)', or --metric-file for what the script writes",
        )

    def _note(self, pair: Pair, text: str) -> None:
        key = (pair.name, pair.kind)
        if key in self._seen or len(self._seen) < _MOST_NAMES:
            self._new_names |= key not in self._seen
            seen = self._seen.setdefault(key, _Seen(pair, text))
            others = [
                other.pair.value
                for (name, kind), other in self._seen.items()
                if name == pair.name and kind != pair.kind
            ]
            seen.only_repeats = seen.only_repeats and pair.value in others
            seen.pair, seen.text, seen.count = pair, text, seen.count + 1

    def _follow(self, at_s: float) -> None:
        keys, self._new_names = self._meant(), False
        if len(keys) <= 1:
            self._followed = keys[0] if keys else None
        elif self._ambiguous_since is None:
            self._ambiguous_since = at_s

    def _meant(self) -> list[_Key]:
        """What the wanted name may mean, of all that was seen."""
        if self.wanted.literal:
            keys = [key for key, seen in self._seen.items() if _without_digits(seen.pair.text) == self.wanted.text]
        else:
            names = choose(self.wanted.name, [name for name, _kind in self._seen])
            keys = [key for key in self._seen if key[0] in names]
        telling = [key for key in keys if not self._seen[key].only_repeats]
        keys = telling or keys
        if self.last is not None and self._followed is not None and self._followed not in keys:
            keys.append(self._followed)  # a name that fits better comes too late: readings of the other were given out
        return keys

    def _by_pattern(self, line: str, at_s: float) -> Reading | None:
        assert self._pattern is not None
        found = self._pattern.search(line)
        parsed = parse_line(line)
        if found is None:
            for pair in parsed.pairs:
                self._note(pair, line)
            return None
        text = found["value"] if "value" in self._pattern.groupindex else found[1]
        try:
            value = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
        except (ValueError, AttributeError):
            raise UserError(
                f"--pattern {self._pattern.pattern!r} takes {text!r} for the value of {_short(line)!r}",
                hint="its group must hold the number alone: 'acc: ([0-9.]+)'",
            ) from None
        pair = Pair(self.wanted.name, self.wanted.text, value)
        reading = Reading(pair.text, value, at_s, Source.PRINTOUT, parsed.step, parsed.epoch, _short(line))
        return self._checked(pair, reading)

    def _checked(self, pair: Pair, reading: Reading) -> Reading:
        if not math.isfinite(reading.value):
            raise MetricProblem(Problem.NOT_A_NUMBER, f"{pair.text} is {reading.value}: {reading.text}")
        if pair.name.is_ratio and self.last is not None and _jumps(self.last.value, reading.value):
            raise MetricProblem(
                Problem.UNIT_JUMP,
                f"the unit of {pair.text} changes from {self.last.value:g} to {reading.value:g}:\n"
                f"  {self.last.text}\n  {reading.text}",
                hint="take one of the two with --pattern",
            )
        fraction_wanted = self.expected is not None and 0 < self.expected <= 1
        if pair.name.is_ratio and fraction_wanted and reading.value > _SURELY_PERCENT:
            assert self.expected is not None
            raise MetricProblem(
                Problem.UNLIKE_TARGET,
                f"{pair.text} is {reading.value:g} and the target {self.expected:g}: {reading.text}",
                hint=f"the script prints percent: write the target as {100 * self.expected:g}",
            )
        self.last = reading
        return reading

    def _listed(self, seen: list[_Seen]) -> str:
        lines = [
            f'  "{_without_digits(one.pair.text)}"{_KINDS[one.pair.kind]} = {one.pair.value:g}, {_times(one.count)}: '
            f"{_short(one.text)}"
            for one in seen[:_SHOWN_NAMES]
        ]
        return "\n".join([*lines, f"  … {len(seen) - _SHOWN_NAMES} more"] if len(seen) > _SHOWN_NAMES else lines)


_KINDS = {LineKind.PLAIN: "", LineKind.SUMMARY: "", LineKind.STEP: " (on lines with a step)"}


def compiled_pattern(text: str) -> re.Pattern[str]:
    """A user's regular expression; a ``UserError`` unless it says which part is the value."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UserError(f"--pattern {text!r} is not a regular expression: {error}") from None
    if pattern.groups != 1 and "value" not in pattern.groupindex:
        raise UserError(
            f"--pattern {text!r} must have one group around the value, and has {pattern.groups}",
            hint="'acc: ([0-9.]+)'; several groups: name that of the value, (?P<value>[0-9.]+)",
        )
    return pattern


def _jumps(before: float, after: float) -> bool:
    """
    >>> _jumps(0.87, 87.1), _jumps(87.1, 0.87), _jumps(0.001, 0.1), _jumps(1.0, 30.0)
    (True, True, False, False)
    """
    small, large = sorted((before, after))
    return _SMALLEST_BEFORE_JUMP <= small <= 1.0 and _JUMPS[0] <= large / small <= _JUMPS[1]


def _without_digits(text: str) -> str:
    """``test accuracy after 3 epochs`` is one name in all epochs; digits of ``Acc@1`` stay."""
    return re.sub(r"(?<![\w@-])\d+\b", "#", text)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_TEXT else f"{text[: _SHOWN_TEXT - 1]}…"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"

"""How the winning set grew: the sets that were tried, each with more in it, from the baseline to the one that won.

Each rung is the step time of runs that took place. Nothing is multiplied together: gains of practices do not add up.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vivace.records.measurement import Measurement
from vivace.records.trial import Outcome, Trial

__all__ = ["Rung", "climb", "ratio_with"]

Words = frozenset[str]


@dataclass(frozen=True)
class Rung:
    """What was added, and the mean step without and with it, the median over the runs of a set."""

    added: tuple[str, ...]
    from_ms: float
    to_ms: float


def climb(trials: Sequence[Trial], winning: Sequence[str]) -> tuple[Rung, ...]:
    """``trials`` in the order they ran. Empty when they do not lead from the baseline to ``winning``."""
    steps_ms = _steps_by_set(trials)
    reached, goal = Words(), Words(winning)
    if reached not in steps_ms:
        return ()
    rungs = []
    for words in steps_ms:
        if reached < words <= goal:
            added = tuple(word for word in winning if word in words - reached)
            rungs.append(Rung(added, steps_ms[reached], steps_ms[words]))
            reached = words
    return tuple(rungs) if reached == goal else ()


def ratio_with(trials: Sequence[Trial], word: str) -> float | None:
    """Speed of the largest set with ``word`` against the same set without it, where both ran."""
    rates = {words: statistics.median(found) for words, found in _by_set(trials, _rate).items()}
    pairs = [words for words in rates if word in words and words - {word} in rates]
    largest = max(pairs, key=len, default=None)
    return None if largest is None else rates[largest] / rates[largest - {word}]


def _steps_by_set(trials: Sequence[Trial]) -> dict[Words, float]:
    """Each set that ran, in the order of its first run, with the median over its runs."""
    return {words: statistics.median(steps_ms) for words, steps_ms in _by_set(trials, _step_ms).items()}


def _by_set(trials: Sequence[Trial], figure: Callable[[Measurement], float | None]) -> dict[Words, list[float]]:
    runs: dict[Words, list[float]] = {}
    over_ranks = any(trial.ranks is not None for trial in trials)
    for trial in trials:
        if over_ranks and trial.ranks is None:  # one process, beside a tune of its ranks
            continue
        value = figure(trial.measurement) if trial.outcome is Outcome.OK and trial.measurement is not None else None
        if value is not None:
            runs.setdefault(Words(trial.practices), []).append(value)
    return runs


def _step_ms(measurement: Measurement) -> float | None:
    return measurement.step_ms.mean if measurement.step_ms is not None else None


def _rate(measurement: Measurement) -> float | None:
    """Steps of another batch size are no measure of speed; samples are."""
    return measurement.samples_per_s or None

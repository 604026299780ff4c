"""Paired and interleaved runs of a set of practices: how much faster is it, and do the losses stay in the band?

Each round has a seed of its own and runs the baseline and the tuned job one after the other, in alternating order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vivace.practices.engine.registry import get_practice, split_word
from vivace.records.finding import Risk
from vivace.records.measurement import Measurement
from vivace.records.proof import Harm, Interval
from vivace.records.trial import Trial
from vivace.tune.bench import Bench
from vivace.tune.candidates import risk_of
from vivace.tune.comparison import compare
from vivace.tune.harm import judge
from vivace.tune.searching import Search, measured

__all__ = ["FIRST_SEED", "Pair", "Verdict", "is_exact", "noise_interval", "paired"]

Pair = tuple[Measurement, Measurement]
SEARCH_SEED = 0
FIRST_SEED = 1  # of the rounds


@dataclass
class Verdict:
    """The paired runs of one set of words, and what they say."""

    words: tuple[str, ...]
    pairs: list[Pair]
    speedup: Interval
    harm: Harm | None


def paired(bench: Bench, found: Search, words: tuple[str, ...], rounds: int, label: str) -> Verdict:
    if not words:
        return Verdict((), [], noise_interval(found), None)
    pairs: list[Pair] = []
    for number in range(rounds):
        if pairs and not bench.has_time_for(sum(trial.seconds for trial in bench.trials[-2:])):  # as the pair before
            break
        pair = _round(bench, words, number, label)
        if pair is None:
            break
        pairs.append(pair)
    if not pairs:
        return Verdict((), [], noise_interval(found), None)
    speedup = compare(pairs)
    rerun = (measured(found.baseline), measured(found.again))
    again = measured(found.again)
    twins = [(again, measured(trial)) for trial in bench.trials if _is_of_the_search(trial, words)][:1]
    harm = judge(pairs, rerun, _must_repeat(words), [] if twins else [again], twins)
    bench.say(
        f"  [bold]=[/] {'all together':32} {speedup.median:.2f}× ({speedup.low:.2f}–{speedup.high:.2f}, "
        f"{len(pairs)} pairs); {harm.verdict}"
    )
    return Verdict(words, pairs, speedup, harm)


def _round(bench: Bench, words: tuple[str, ...], number: int, label: str) -> Pair | None:
    sides: dict[str, Trial] = {}
    for side in ("baseline", "tuned") if number % 2 == 0 else ("tuned", "baseline"):
        chosen = words if side == "tuned" else ()
        sides[side] = bench.run(f"{label}{number}-{side}", chosen, seed=FIRST_SEED + number, norms=True)
    if any(trial.outcome != "ok" for trial in sides.values()):
        return None
    return measured(sides["baseline"]), measured(sides["tuned"])


def _is_of_the_search(trial: Trial, words: tuple[str, ...]) -> bool:
    """A run of this very set with the seed of the search, whose baseline is its twin."""
    return trial.practices == words and trial.seed_offset == SEARCH_SEED and trial.outcome == "ok"


def is_exact(words: Sequence[str]) -> bool:
    return all(risk_of(word) is Risk.EXACT for word in words)


def _must_repeat(words: Sequence[str]) -> bool:
    return is_exact(words) and all(get_practice(split_word(word)[0]).same_losses for word in words)


def noise_interval(found: Search) -> Interval:
    """No practice: the speed-up is 1, within what two runs of the baseline differ by."""
    ratio = compare([(measured(found.baseline), measured(found.again))])
    low, high = min(ratio.low, 1.0), max(ratio.high, 1.0)
    return Interval(median=1.0, low=low, high=high)

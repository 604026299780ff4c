"""Paired and interleaved runs of a set of practices: how much faster is it, and do the losses stay in the band?

Each round has a seed of its own and runs the baseline and the tuned job one after the other, in alternating order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vivace.practices.engine.registry import get_practice, split_word
from vivace.records.finding import Risk
from vivace.records.proof import Harm, Interval
from vivace.records.trial import Trial
from vivace.tune.bench import Bench
from vivace.tune.candidates import risk_of
from vivace.tune.comparison import Pair, compare, run_noise
from vivace.tune.harm import judge
from vivace.tune.searching import Search, measured

__all__ = ["FIRST_SEED", "Pair", "Verdict", "is_exact", "noise_interval", "noise_of", "paired"]

SEARCH_SEED = 0
FIRST_SEED = 1  # of the rounds
_ENOUGH_ROUNDS = 3  # that their ratios show how far whole runs lie apart


@dataclass
class Verdict:
    """The paired runs of one set of words, and what they say."""

    words: tuple[str, ...]
    pairs: list[Pair]
    speedup: Interval
    harm: Harm | None
    ended: Trial | None = None
    """A run of the rounds that did not get through."""


def paired(bench: Bench, found: Search, words: tuple[str, ...], rounds: int, label: str) -> Verdict:
    """As many rounds as are asked for, and more where they do not decide; as far as the time goes."""
    pairs: list[Pair] = []
    ended: Trial | None = None
    while words and (len(pairs) < rounds or _is_undecided(found, pairs)):
        if pairs and not bench.has_time_for(sum(trial.seconds for trial in bench.trials[-2:])):  # as the pair before
            break
        result = _round(bench, words, len(pairs), label)
        if isinstance(result, Trial):
            ended = result
            break
        pairs.append(result)
    if not pairs:
        return Verdict(words, [], noise_interval(found), None, ended)
    speedup = _speedup(found, pairs)
    rerun = (measured(found.baseline), measured(found.again))
    again = measured(found.again)
    twins = [(again, measured(trial)) for trial in bench.trials if _is_of_the_search(trial, words)][:1]
    harm = judge(pairs, rerun, _must_repeat(words), [] if twins else [again], twins)
    bench.say(
        f"  [bold]=[/] {'all together':32} {speedup.median:.2f}× ({speedup.low:.2f}–{speedup.high:.2f}, "
        f"{len(pairs)} pairs); {harm.verdict}"
    )
    return Verdict(words, pairs, speedup, harm, ended)


def _speedup(found: Search, pairs: Sequence[Pair]) -> Interval:
    return compare(pairs, 0.0 if len(pairs) >= _ENOUGH_ROUNDS else noise_of(found, pairs))


def _is_undecided(found: Search, pairs: Sequence[Pair]) -> bool:
    """Faster, but not surely: another round may show that it was the noise of whole runs."""
    if len(pairs) >= _ENOUGH_ROUNDS:
        return False
    speedup = _speedup(found, pairs)
    return speedup.low <= 1.0 and speedup.median > 1.0 + found.noise


def noise_of(found: Search, pairs: Sequence[Pair]) -> float:
    """Of a run as a whole, by all runs of the unchanged job."""
    return run_noise([measured(found.baseline), measured(found.again), *(before for before, _ in pairs)])


def _round(bench: Bench, words: tuple[str, ...], number: int, label: str) -> Pair | Trial:
    """Both sides; or the run that ended, and then the other one is not needed."""
    sides: dict[str, Trial] = {}
    for side in ("baseline", "tuned") if number % 2 == 0 else ("tuned", "baseline"):
        chosen = words if side == "tuned" else ()
        trial = bench.run(f"{label}{number}-{side}", chosen, seed=FIRST_SEED + number, norms=True)
        if trial.outcome != "ok":
            return trial
        sides[side] = trial
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

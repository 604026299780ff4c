"""Paired and interleaved runs of a set of practices: how much faster is it, and do the losses stay in the band?

Each round has a seed of its own and runs the baseline and the tuned job one after the other, in alternating order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vivace.practices.engine.registry import is_probe
from vivace.records.finding import Risk
from vivace.records.measurement import Measurement
from vivace.records.proof import Harm, Interval, Varied
from vivace.records.trial import Outcome, Trial
from vivace.tune.attempts import Search
from vivace.tune.bench import Bench
from vivace.tune.candidates import risk_of
from vivace.tune.comparison import Estimate, Pair, baseline_first, by_pairs, by_single_runs, speed
from vivace.tune.harm import claims_of, judge
from vivace.tune.harm_runs import FIRST_SEED, harm_looks
from vivace.tune.looks import more_would_help, pairs_needed, speedup_of
from vivace.tune.references import measured

__all__ = ["FIRST_SEED", "Pair", "Verdict", "in_words", "is_exact", "noise_interval", "paired", "reruns_of", "varied"]

SEARCH_SEED = 0


@dataclass
class Verdict:
    """The paired runs of one set of words, and what they say."""

    words: tuple[str, ...]
    pairs: list[Pair]
    speedup: Interval
    harm: Harm | None
    ended: Trial | None = None
    """A run of the rounds that did not get through."""
    needed: int | None = None
    """Pairs in all that would prove the gain if it is what it seems to be; None: proved, too small, or hopeless."""


def paired(
    bench: Bench, found: Search, words: tuple[str, ...], rounds: int, label: str, harm_steps: int | None = None
) -> Verdict:
    """As many rounds as are asked for, and more where they do not decide; as far as the time goes.

    What is faster is then looked at for harm; ``harm_steps``: over at least so many steps.
    """
    pairs: list[Pair] = []
    ended: Trial | None = None
    while words and (len(pairs) < rounds or more_would_help(_estimate(found, pairs), len(pairs), rounds)):
        if pairs and not bench.has_time_for(sum(trial.seconds for trial in bench.trials[-2:])):  # as the pair before
            break
        result = _round(bench, words, len(pairs), label)
        if isinstance(result, Trial):
            ended = result
            break
        pairs.append(result)
    if not pairs:
        return Verdict(words, [], noise_interval(found), None, ended)
    estimate = _estimate(found, pairs)
    speedup = speedup_of(estimate, len(pairs), rounds)
    rerun = (measured(found.baseline), measured(found.again))
    again = measured(found.again)
    twins = [(again, measured(trial)) for trial in bench.trials if _is_of_the_search(trial, words)][:1]
    looks, unseen = harm_looks(bench, found, words, pairs[0], harm_steps) if speedup.low > 1.0 else ([], [])
    harm = judge(pairs, rerun, claims_of(words, again), [] if twins else [again], twins, looks, unseen)
    bench.say(
        f"  [bold]=[/] {'all together':32} {speedup.median:.2f}× ({speedup.low:.2f}–{speedup.high:.2f}, "
        f"{in_words(len(pairs))}); {harm.verdict}"
    )
    return Verdict(words, pairs, speedup, harm, ended, pairs_needed(estimate, len(pairs), rounds))


def _estimate(found: Search, pairs: Sequence[Pair]) -> Estimate:
    return by_pairs(pairs, [measured(found.baseline), measured(found.again)])


def reruns_of(found: Search, pairs: Sequence[Pair]) -> list[list[Measurement]]:
    """The runs of the unchanged job, of all the session, and those of the tuned one."""
    unchanged = [measured(found.baseline), measured(found.again), *(before for before, _ in pairs)]
    return [unchanged, [after for _, after in pairs]]


def varied(found: Search, pairs: Sequence[Pair]) -> Varied:
    """How steady the unchanged job ran, in the search and in the pairs."""
    runs = [*map(measured, (found.baseline, *found.references.unchanged)), *(before for before, _ in pairs)]
    speeds = [speed(m) for m in runs]
    unit: Literal["samples", "steps"] = "steps" if runs[0].samples_per_s is None else "samples"
    return Varied(low=min(speeds), high=max(speeds), runs=len(runs), unit=unit)


def _round(bench: Bench, words: tuple[str, ...], number: int, label: str) -> Pair | Trial:
    """Both sides; or the run that ended, and then the other one is not needed."""
    sides: dict[str, Trial] = {}
    for side in ("baseline", "tuned") if baseline_first(number) else ("tuned", "baseline"):
        chosen = words if side == "tuned" else ()
        trial = bench.run(f"{label}{number}-{side}", chosen, seed=FIRST_SEED + number, norms=True)
        if trial.outcome is not Outcome.OK:
            return trial
        sides[side] = trial
    return measured(sides["baseline"]), measured(sides["tuned"])


def _is_of_the_search(trial: Trial, words: tuple[str, ...]) -> bool:
    """A run of this very set with the seed of the search, whose baseline is its twin."""
    return trial.practices == words and trial.seed_offset == SEARCH_SEED and trial.outcome is Outcome.OK


def in_words(pairs: int) -> str:
    """
    >>> in_words(1), in_words(3)
    ('1 pair', '3 pairs')
    """
    return f"{pairs} pair{'s' if pairs != 1 else ''}"


def is_exact(words: Sequence[str]) -> bool:
    return all(is_probe(word) or risk_of(word) is Risk.EXACT for word in words)


def noise_interval(found: Search, pairs: Sequence[Pair] = ()) -> Interval:
    """No practice: the speedup is 1. The interval is what two runs of the unchanged job differ by."""
    unchanged = reruns_of(found, pairs)[0]
    half = by_single_runs(unchanged[:1], unchanged[1:2], [unchanged]).half_width()
    return Interval(median=1.0, low=math.exp(-half), high=math.exp(half))

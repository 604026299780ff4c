"""Runs that are made to judge harm, and are not timed.

*The fine look*: beside a practice that rounds coarsely (bf16) or draws other random numbers, a harm of the others is
hidden. So the set runs once more without it, compiled code draws its dropout masks as the script does, and the run is
compared with the baseline of the first round to the last digits.

*The long look*: one pair of many steps, where it was asked for (``--harm-steps``) or a practice shows its effect late.
One pair is the cheapest way to see far: longer rounds would be paid for in every one of them.

*Suspects alone*: which practice does it? A few steps of each tell, where the first steps have shown it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from vivace.practices.engine.practice import Practice
from vivace.practices.engine.registry import get_practice, is_probe, split_word
from vivace.records.proof import Harm, HarmOutcome, HarmTestKind
from vivace.records.trial import Outcome
from vivace.tune.attempts import Search, refusal
from vivace.tune.bench import Bench
from vivace.tune.comparison import Pair
from vivace.tune.harm import HarmLook, claims_of
from vivace.tune.references import measured

__all__ = ["FIRST_SEED", "LATE_STEPS", "SHORT_STEPS", "harm_looks", "seen_in_the_first_steps", "suspects_of"]

FIRST_SEED = 1  # of the rounds
LATE_STEPS = 300  # that a practice which shows late is looked at by default
SHORT_STEPS = 10  # timed ones; with warm-up and gradient norms some thirty
_EARLY = (HarmTestKind.FIRST_STEP, HarmTestKind.PAIRED_LOSSES)


def harm_looks(
    bench: Bench, found: Search, words: tuple[str, ...], pair: Pair, harm_steps: int | None
) -> tuple[list[HarmLook], list[str]]:
    """The looks that this set needs, as far as the time goes; and what they leave unseen, in sentences.

    ``pair``: of the first round, whose baseline is compared with.
    """
    looks: list[HarmLook] = []
    unseen: list[str] = []
    words = tuple(word for word in words if not is_probe(word))
    if pair[0].first_steps is not None:
        _look_finely(bench, found, words, pair, looks, unseen)
    _look_long(bench, found, words, pair, harm_steps, looks, unseen)
    return looks, unseen


def _look_finely(
    bench: Bench, found: Search, words: tuple[str, ...], pair: Pair, looks: list[HarmLook], unseen: list[str]
) -> None:
    fine = tuple(word for word in words if _is_fine(_practice(word)))
    hidden = [word for word in words if word not in fine]
    draws = any(_practice(word).other_draws for word in fine)
    if not fine or not (hidden or draws):
        return
    beside = f"what {', '.join(fine)} do{'es' if len(fine) == 1 else ''} beside {', '.join(hidden)}"
    if not bench.has_time_for(found.pair_s + found.warm_s):
        unseen.append(f"{beside}: not enough time to look at it alone" if hidden else "dropout masks: not enough time")
        return
    limit_s = min(15 + 3 * max(found.again.seconds, found.best.seconds), bench.left_s)
    trial = bench.run(
        "fine-look", fine, seed=FIRST_SEED, norms=True, same_draws=True, steps=SHORT_STEPS, limit_s=limit_s
    )
    applied = trial.outcome is Outcome.OK and not any(refusal(trial, word) for word in fine)
    if not applied:
        unseen.append(
            f"{beside}: without {', '.join(hidden)} it did not run" if hidden else f"the look: {trial.outcome}"
        )
        return
    looks.append(HarmLook((pair[0], measured(trial)), fine, claims_of(fine, pair[0], same_draws=True)))


def _look_long(
    bench: Bench, found: Search, words: tuple[str, ...], pair: Pair, harm_steps: int | None, looks: list[HarmLook],
    unseen: list[str],
) -> None:  # fmt: skip
    late = [word for word in words if _practice(word).shows_late]
    steps = harm_steps or (LATE_STEPS if late else 0)
    if steps <= len(pair[0].trajectory):
        return
    needed_s = _seconds_of(found, pair, steps)
    if not bench.has_time_for(needed_s):
        minutes = (bench.used_s + needed_s + found.pair_s) / 60
        why = f"{', '.join(late)} may show only after hundreds of steps" if late else f"--harm-steps {steps}"
        go_on = f"vivace tune --resume {shlex.quote(str(bench.folder))} --budget {minutes:.0f}"
        unseen.append(f"{why}, and there was not enough time for {steps} steps (continue with: {go_on})")
        return
    sides = [
        bench.run(f"long-{side}", chosen, seed=FIRST_SEED, norms=True, steps=steps)
        for side, chosen in (("baseline", ()), ("tuned", words))
    ]
    before, after = (trial.measurement for trial in sides)  # one that ended early still has its losses
    if before is not None and after is not None:
        looks.append(HarmLook((before, after), words, claims_of(words, pair[0]), long=True))
    else:
        unseen.append(f"the long look failed ({', '.join(trial.outcome for trial in sides)})")


def _seconds_of(found: Search, pair: Pair, steps: int) -> float:
    """Both runs: as a round, and the further steps."""
    step_ms = [m.step_ms.mean for m in pair if m.step_ms is not None]
    return found.pair_s + sum(step_ms) * steps / 1e3


def _practice(word: str) -> Practice:
    return get_practice(split_word(word)[0])


def _is_fine(practice: Practice) -> bool:
    """Whether its first steps can be compared with the baseline's to the last digits."""
    return practice.number_format == "fp32" and (not practice.other_draws or practice.can_draw_the_same)


def seen_in_the_first_steps(harm: Harm) -> bool:
    """Then a short run shows it, too."""
    return any(test.outcome is HarmOutcome.FAILED and test.kind in _EARLY for test in harm.tests)


def suspects_of(harm: Harm, words: Sequence[str]) -> list[str]:
    """The practices that may do it: those of the look that failed, or those that no look has cleared."""
    for test in harm.tests:
        if test.outcome is HarmOutcome.FAILED and test.of is not None:
            return list(test.of)
    cleared = {word for test in harm.tests if test.outcome is HarmOutcome.PASSED for word in test.of or ()}
    left = [word for word in words if word not in cleared]
    return left or list(words)

"""One verdict from the tests: over pairs of the proof, and over runs that were made to judge harm only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from vivace.records.measurement import Measurement
from vivace.records.proof import Harm, HarmOutcome, HarmTest, HarmTestKind, HarmVerdict
from vivace.tune.comparison import Pair
from vivace.tune.harm.claims import Claims
from vivace.tune.harm.first_step import compare_first_steps, same_batches
from vivace.tune.harm.long_look import compare_long_runs
from vivace.tune.harm.paired_losses import compare_losses
from vivace.tune.harm.seed_band import Band, Runs, compare_with_band, gather_band

__all__ = ["HarmLook", "judge"]

_FEWEST_STEPS = 5
_MOST_TELLING = (HarmOutcome.FAILED, HarmOutcome.PASSED, HarmOutcome.NOT_RUN)


@dataclass(frozen=True)
class HarmLook:
    """A pair that was run to judge harm only, of ``words`` (perhaps fewer than the set's: without what rounds coarsely
    or draws other random numbers, the others can be judged to the last digits). ``long``: for what shows late."""

    pair: Pair
    words: tuple[str, ...]
    claims: Claims
    long: bool = False


def judge(
    rounds: Sequence[Pair],
    rerun: Pair | None,
    claims: Claims,
    more_baselines: Sequence[Measurement] = (),
    more_pairs: Sequence[Pair] = (),
    looks: Sequence[HarmLook] = (),
    unseen: Sequence[str] = (),
) -> Harm:
    """``rerun``: the baseline twice with the same seed, to know whether it repeats itself.

    ``claims``: how much the set may differ. ``more_baselines`` have other seeds than the pairs, and widen what the band
    rests on. ``more_pairs`` are no rounds, and need no gradient norms; their losses count like those of the rounds.
    ``unseen``: what these runs cannot show, in sentences; how many steps they have is added.
    """
    pairs = [*rounds, *(pair for pair in more_pairs if all(len(_losses(m)) >= _FEWEST_STEPS for m in pair))]
    before, after = [_losses(m) for m, _ in pairs], [_losses(m) for _, m in pairs]
    more_baselines = [m for m in more_baselines if _can_be_compared(m)]
    others = [_losses(m) for m in more_baselines]
    steps = min((len(t) for t in (*before, *after, *others)), default=0)
    tests = _first_step_tests(rounds, claims, rerun, looks)
    if steps < _FEWEST_STEPS:
        return _without_losses(tests, "the script shows too few losses to compare", rounds, unseen)
    if not all(map(_is_finite, before)):
        why = "the script's own losses are not finite, without any practice"
        return _without_losses([], why, rounds, unseen)
    if not all(map(_is_finite, after)):
        return Harm(
            verdict=HarmVerdict.OUTSIDE, steps=steps, rounds=len(rounds), seeds=len(pairs),
            says="a loss became NaN or infinite",
        )  # fmt: skip
    before, after, others = ([run[:steps] for run in runs] for runs in (before, after, others))
    band = gather_band(rounds, before, after, others, [*more_baselines, *(before for before, _ in more_pairs)])
    tests += _loss_tests(rounds, pairs, before, after, band, claims, rerun, looks)
    tests.append(compare_with_band(band, before, after, others))
    tests += [compare_long_runs(_losses(look.pair[0]), _losses(look.pair[1])) for look in looks if look.long]
    failed = next((test for test in tests if test.outcome is HarmOutcome.FAILED), None)
    same = failed is None and before == after
    return Harm(
        verdict=HarmVerdict.OUTSIDE if failed else HarmVerdict.SAME_LOSSES if same else HarmVerdict.INSIDE,
        says=_says(tests, failed, steps if same else None),
        tests=tuple(tests), cannot_see=_cannot_see(tests, unseen),
        moved=band.moved, band=band.band, norm_moved=band.norm_moved, norm_band=band.norm_band,
        norm_size=band.norm_size, steps=steps, rounds=len(rounds), seeds=len(pairs),
    )  # fmt: skip


def _first_step_tests(
    rounds: Sequence[Pair], claims: Claims, rerun: Pair | None, looks: Sequence[HarmLook]
) -> list[HarmTest]:
    """Of the rounds one test: the first that failed, or the first. Of each look one more, named for its practices."""
    tests = [compare_first_steps(pair, claims, rerun) for pair in rounds]
    chosen = sorted(tests, key=lambda test: _MOST_TELLING.index(test.outcome))[:1]
    if chosen and chosen[0].outcome is HarmOutcome.PASSED:
        chosen = [chosen[0].model_copy(update={"pairs": sum(test.outcome is HarmOutcome.PASSED for test in tests)})]
    return chosen + [_named(compare_first_steps(look.pair, look.claims, rerun), look) for look in looks]


def _loss_tests(
    rounds: Sequence[Pair], pairs: Sequence[Pair], before: Runs, after: Runs, band: Band, claims: Claims,
    rerun: Pair | None, looks: Sequence[HarmLook],
) -> list[HarmTest]:  # fmt: skip
    tests = []
    twice = _common_losses(rerun) if rerun is not None and all(map(_can_be_compared, rerun)) else None
    if claims.same_losses and before != after and _repeats(rerun):
        says = "the losses should be the same, as the baseline's are when it runs again"
        tests.append(
            HarmTest(
                kind=HarmTestKind.PAIRED_LOSSES,
                outcome=HarmOutcome.FAILED,
                steps=len(before[0]),
                pairs=len(pairs),
                says=says,
            )
        )
    elif claims.other_draws and not all(_go_together(pair) for pair in rounds):
        says = f"{', '.join(claims.other_draws)} may draw other random numbers: losses part by more than rounding"
        tests.append(HarmTest(kind=HarmTestKind.PAIRED_LOSSES, outcome=HarmOutcome.NOT_RUN, says=says))
    else:
        tests.append(compare_losses(before, after, band.band, claims, twice))
    for look in looks:
        old, new = _common_losses(look.pair)
        if len(old) >= _FEWEST_STEPS and _is_finite(old) and _is_finite(new) and _go_together(look.pair):
            tests.append(_named(compare_losses([old], [new], band.band, look.claims, twice), look))
    return tests


def _go_together(pair: Pair) -> bool:
    """Whether nothing is known to draw other numbers: the same batches, and no dropout that others may draw for."""
    before, after = pair[0].first_steps, pair[1].first_steps
    if before is None or after is None or not same_batches(before, after):
        return False
    return before.steps[:1] == after.steps[:1] or not any(f.dropout_sum for f in before.forwards)


def _named(test: HarmTest, look: HarmLook) -> HarmTest:
    return test.model_copy(update={"of": look.words})


def _without_losses(tests: Sequence[HarmTest], why: str, rounds: Sequence[Pair], unseen: Sequence[str]) -> Harm:
    """Gradients may still tell of a harm; but without losses nobody says that there is none."""
    failed = next((test for test in tests if test.outcome is HarmOutcome.FAILED), None)
    return Harm(
        verdict=HarmVerdict.OUTSIDE if failed else HarmVerdict.NOT_COMPARABLE,
        says=_says(tests, failed) if failed else why,
        tests=tuple(tests), cannot_see=_cannot_see(tests, unseen), rounds=len(rounds),
    )  # fmt: skip


def _says(tests: Sequence[HarmTest], failed: HarmTest | None, same_steps: int | None = None) -> str:
    if failed is not None:
        return f"{failed.title}: {failed.says}"
    if same_steps is not None:
        return f"all {same_steps} losses are the same, bit for bit"
    return "; ".join(f"{test.title}: {test.says}" for test in tests if test.outcome is HarmOutcome.PASSED)


def _cannot_see(tests: Sequence[HarmTest], unseen: Sequence[str]) -> str:
    steps = max((test.steps for test in tests if test.outcome is not HarmOutcome.NOT_RUN), default=0)
    reasons = [f"{test.title}: {test.says}" for test in tests if test.outcome is HarmOutcome.NOT_RUN]
    return "; ".join([*unseen, *reasons, f"effects that show after {steps} steps"])


def _losses(m: Measurement) -> list[float]:
    """Up to the first step without one."""
    known = itertools.takewhile(lambda loss: loss is not None, m.trajectory)
    return [float(loss) for loss in known]  # type: ignore[arg-type]


def _common_losses(pair: Pair) -> tuple[list[float], list[float]]:
    first, second = (_losses(m) for m in pair)
    steps = min(len(first), len(second))
    return first[:steps], second[:steps]


def _can_be_compared(m: Measurement) -> bool:
    losses = _losses(m)
    return len(losses) >= _FEWEST_STEPS and _is_finite(losses)


def _is_finite(losses: Sequence[float]) -> bool:
    return all(map(math.isfinite, losses))


def _repeats(rerun: Pair | None) -> bool:
    if rerun is None:
        return False
    first, second = _common_losses(rerun)
    return bool(first) and first == second

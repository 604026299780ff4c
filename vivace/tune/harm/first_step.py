"""The first steps of two runs with the same seed: same weights, same batch. What differs is the practice.

What must be the same whatever a practice rounds to: the batches, which modules train, how many backward passes a step
has, the optimizer's settings, which parameters get a gradient and move. What may differ by rounding: the gradient (its
length and its direction), the update, within the tolerance of the number format.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vivace.records.first_steps import FirstStep, FirstSteps
from vivace.records.measurement import Measurement
from vivace.records.proof import HarmOutcome, HarmTest, HarmTestKind
from vivace.tune.comparison import Pair
from vivace.tune.harm.claims import Claims

__all__ = ["compare_first_steps", "gradient_difference", "same_batches"]

_KIND = HarmTestKind.FIRST_STEP
_LATER = 10.0  # a later step's gradients may differ by so much more: its weights are not quite the same any more
_PART = 20.0  # and those of a part of the model, as rounding does not hit all parts alike
_SMALL_PART = 1e-3  # of the whole gradient: below, a part is near to zero and its rounding large (a bias before a norm)
_NOISE = 10.0  # times what a rerun of the unchanged job differs by
_SAME_SETTING = 1e-6
_ALONG_ROUNDED = 0.25  # weights in 16 bits lose small updates: so much of the update must be left


@dataclass(frozen=True)
class _Difference:
    says: str
    may_be_draws: bool = False
    """Another dropout mask shows like this, too."""


def compare_first_steps(pair: Pair, claims: Claims, rerun: Pair | None = None) -> HarmTest:
    before, after = pair[0].first_steps, pair[1].first_steps
    if before is None or after is None or not before.steps or not after.steps:
        return _not_run("no gradients were recorded")
    if not same_batches(before, after):
        return _other_batches(claims, rerun)
    if claims.leaves_steps_out and _overflows(after.steps[0]) and not _overflows(before.steps[0]):
        return _not_run("fp16 left out the first step, as loss scaling does until its scale fits")
    steps = min(len(before.steps), len(after.steps))
    noise = gradient_difference(rerun) if rerun is not None else 0.0
    exact = claims.same_losses and rerun is not None and _digests(rerun[0]) == _digests(rerun[1]) != ()
    found = next(_differences(pair, claims, noise, exact), None)
    if found is not None and found.may_be_draws and claims.other_draws and _has_dropout(before):
        return _not_run(f"{_named(claims)} may draw other dropout masks; {found.says}")
    if found is not None:
        return HarmTest(kind=_KIND, outcome=HarmOutcome.FAILED, steps=steps, pairs=1, says=found.says)
    return HarmTest(kind=_KIND, outcome=HarmOutcome.PASSED, steps=steps, pairs=1, says=_agreement(before, after, exact))


def _not_run(why: str) -> HarmTest:
    return HarmTest(kind=_KIND, outcome=HarmOutcome.NOT_RUN, says=why)


def _named(claims: Claims) -> str:
    return ", ".join(claims.other_draws)


def _other_batches(claims: Claims, rerun: Pair | None) -> HarmTest:
    if claims.other_draws:
        return _not_run(f"the batches are not the same: {_named(claims)} may draw other random numbers")
    if rerun is not None and not _rerun_has_same_batches(rerun):
        return _not_run("the script sees different batches in every run, even with the same seed")
    says = "the first batches are not the same, though no practice here may change them"
    return HarmTest(kind=_KIND, outcome=HarmOutcome.FAILED, steps=1, pairs=1, says=says)


def _rerun_has_same_batches(rerun: Pair) -> bool:
    first, second = rerun[0].first_steps, rerun[1].first_steps
    return first is None or second is None or same_batches(first, second)


def same_batches(before: FirstSteps, after: FirstSteps) -> bool:
    """What loaders handed out (labels included) and what went into the model, as far as both are known."""
    for first, second in zip(before.batches, after.batches, strict=False):
        known = min(len(first), len(second))
        if first[:known] != second[:known]:
            return False
    first_inputs, second_inputs = _first_inputs(before), _first_inputs(after)
    known = min(len(first_inputs), len(second_inputs))
    return first_inputs[:known] == second_inputs[:known]


def _first_inputs(steps: FirstSteps) -> list[str]:
    return [forward.digest for forward in steps.forwards if forward.after_steps == 0]


def _overflows(step: FirstStep) -> bool:
    return not np.isfinite(step.norms).all()


def _has_dropout(steps: FirstSteps) -> bool:
    return any(forward.dropout_sum > 0 for forward in steps.forwards)


def _digests(m: Measurement) -> tuple[str, ...]:
    return tuple(step.gradient_digest for step in m.first_steps.steps) if m.first_steps is not None else ()


def gradient_difference(pair: Pair) -> float:
    """Of the first step, relative to the first run's gradient; 0 where it is not known."""
    first, second = pair[0].first_steps, pair[1].first_steps
    if first is None or second is None or not first.steps or not second.steps:
        return 0.0
    if not _alike(first.steps[0], second.steps[0]):
        return 0.0
    return _relative(first.steps[0].gradient, second.steps[0].gradient)


def _alike(before: FirstStep, after: FirstStep) -> bool:
    return before.parameters == after.parameters and np.shape(before.gradient) == np.shape(after.gradient)


# -- differences, the most telling first -------------------------------------------------------------------------------


def _differences(pair: Pair, claims: Claims, noise: float, exact: bool) -> Iterator[_Difference]:
    before, after = pair[0].first_steps, pair[1].first_steps
    assert before is not None
    assert after is not None
    yield from _modes(before, after)
    yield from _backwards(*pair)
    steps = list(zip(before.steps, after.steps, strict=False))
    if claims.leaves_steps_out:
        steps = list(itertools.takewhile(lambda pair: not _overflows(pair[1]), steps))
    for number, (old, new) in enumerate(steps):
        where = "at the first step" if number == 0 else f"at step {number + 1}"
        if not _alike(old, new) or old.optimizer != new.optimizer:
            yield _Difference(f"other parameters are trained {where} ({old.parameters} and {new.parameters})")
            return
        yield from _facts(old, new, claims, where)
    for number, (old, new) in enumerate(steps):
        where = "at the first step" if number == 0 else f"at step {number + 1}"
        if exact and (old.gradient_digest, old.update_digest) != (new.gradient_digest, new.update_digest):
            yield _Difference(f"gradients {where} should be the same, to the bit, and are not", may_be_draws=True)
        if number == 0:
            yield from _gradients(old, new, claims, noise, 1.0, where)
            yield from _parts(old, new, claims, noise)
        elif _same_inputs(before, after, number):
            yield from _gradients(old, new, claims, noise, _LATER, where)
        yield from _updates(old, new, claims, where)


def _same_inputs(before: FirstSteps, after: FirstSteps, steps: int) -> bool:
    """Of all forwards before that many steps were done, and of the next one."""
    return [f.digest for f in before.forwards if f.after_steps <= steps] == [
        f.digest for f in after.forwards if f.after_steps <= steps
    ]


def _modes(before: FirstSteps, after: FirstSteps) -> Iterator[_Difference]:
    for old, new in zip(before.forwards, after.forwards, strict=False):
        if (old.norms_training, old.norms_evaluating) != (new.norms_training, new.norms_evaluating):
            counts = f"{old.norms_evaluating} and {new.norms_evaluating}"
            yield _Difference(f"batch norms run in another mode (in eval mode: {counts})")
        if old.dropout_sum != new.dropout_sum:
            yield _Difference(f"dropout differs (probabilities add up to {old.dropout_sum:g} and {new.dropout_sum:g})")


def _backwards(before: Measurement, after: Measurement) -> Iterator[_Difference]:
    for number, (old, new) in enumerate(zip(before.backwards, after.backwards, strict=False), 1):
        if old != new:
            yield _Difference(f"step {number} has {new} backward passes instead of {old}")


def _facts(old: FirstStep, new: FirstStep, claims: Claims, where: str) -> Iterator[_Difference]:
    if old.dtypes != new.dtypes and not claims.rounds_weights:
        yield _Difference(f"weights are kept as {', '.join(new.dtypes)} instead of {', '.join(old.dtypes)}")
    for name, first, second in (
        ("are trained", old.trainable, new.trainable),
        ("have no gradient", old.without_gradient, new.without_gradient),
        ("have a gradient of zero", old.zero_gradient, new.zero_gradient),
        ("stand still", old.unchanged, new.unchanged),
    ):
        still = name == "stand still"
        if first is None or second is None or (still and claims.rounds_weights):
            continue
        if second > first or (second < first and not still):
            who = f": {', '.join(new.stand_still[:3])}" if still else ""
            yield _Difference(f"{second} parameters instead of {first} {name} {where}{who}")
    for group, (first_of, second_of) in enumerate(zip(old.settings, new.settings, strict=False)):
        for setting in sorted(first_of.keys() & second_of.keys()):
            first_value, second_value = first_of[setting], second_of[setting]
            if abs(first_value - second_value) > _SAME_SETTING * max(abs(first_value), 1e-12):
                yield _Difference(
                    f"the optimizer's {setting} is {second_value:g} instead of {first_value:g} {where} (group {group})"
                )


def _gradients(
    old: FirstStep, new: FirstStep, claims: Claims, noise: float, looser: float, where: str
) -> Iterator[_Difference]:
    allowed = claims.tolerance
    if _overflows(new) and not _overflows(old):
        yield _Difference(f"gradients {where} are not finite")
        return
    first, second = float(np.linalg.norm(old.norms)), float(np.linalg.norm(new.norms))
    most = max(looser * allowed.norm, _NOISE * noise)
    if first > 0 and abs(second / first - 1) > most:
        yield _Difference(f"gradients {where} are {_percent(second / first - 1)} longer ({_at_most(most)})", True)
    differ, most = _relative(old.gradient, new.gradient), max(looser * allowed.gradient, _NOISE * noise)
    if differ > most:
        yield _Difference(f"gradients {where} differ by {_share(differ)} of their length ({_at_most(most)})", True)


def _parts(old: FirstStep, new: FirstStep, claims: Claims, noise: float) -> Iterator[_Difference]:
    most = min(1.0, max(_PART * claims.tolerance.gradient, _NOISE * noise))
    whole = float(np.linalg.norm(old.norms))
    for name, norm, first, second in zip(old.part_names, old.norms, old.gradient, new.gradient, strict=False):
        if norm > _SMALL_PART * whole and most < 1 and _relative(first, second) > most:
            says = f"the gradient of {name} differs by {_share(_relative(first, second))} of its length"
            yield _Difference(f"{says} ({_at_most(most)})", True)


def _updates(old: FirstStep, new: FirstStep, claims: Claims, where: str) -> Iterator[_Difference]:
    """Adam divides small gradients by themselves: their updates change sign by rounding alone. So an update is judged
    by its length, and by how much of the baseline's update it holds."""
    first, second = np.ravel(old.update), np.ravel(new.update)
    length = float(np.linalg.norm(first)) if first.size else 0.0
    if first.size != second.size or not length > 0 or not np.isfinite(second).all():
        return
    along = float(first @ second) / length**2
    if claims.rounds_weights:
        if along < _ALONG_ROUNDED:
            yield _Difference(f"only {max(along, 0):.0%} of the update {where} is left after rounding the weights")
        return
    longer = float(np.linalg.norm(second)) / length
    of_gradient = longer * float(np.linalg.norm(old.norms)) / max(float(np.linalg.norm(new.norms)), 1e-300)
    if min(abs(longer - 1), abs(of_gradient - 1)) > claims.tolerance.update_norm:
        most = _at_most(claims.tolerance.update_norm)
        yield _Difference(f"the update {where} is {_percent(longer - 1)} longer ({most})", True)
    if along / max(longer, 1e-12) < claims.tolerance.update_along:
        yield _Difference(f"the update {where} points elsewhere (cosine {along / max(longer, 1e-12):.2f})", True)


def _relative(first: object, second: object) -> float:
    a, b = np.ravel(np.asarray(first, dtype=float)), np.ravel(np.asarray(second, dtype=float))
    length = float(np.linalg.norm(a))
    distance = float(np.linalg.norm(b - a))
    return distance / length if length > 0 else float(distance > 0)


def _percent(share: float) -> str:
    return f"{100 * share:+.2g} %"


def _share(share: float) -> str:
    return f"{100 * share:.2g} %" if share >= 1e-4 else f"{share:.0e}"


def _at_most(tolerance: float) -> str:
    return f"rounding explains {_share(tolerance)} at most"


def _agreement(before: FirstSteps, after: FirstSteps, exact: bool) -> str:
    old, new = before.steps[0], after.steps[0]
    if old.gradient_digest == new.gradient_digest and old.update_digest == new.update_digest:
        return "gradients and update are the same, to the bit" if exact else "gradients and update are the same"
    return f"gradients agree to {_share(_relative(old.gradient, new.gradient))} of their length"

"""Losses of two runs with the same seed, step by step, as long as the two go together.

At first the losses differ by rounding alone; training then drives two runs apart, up or down by chance. A harm pushes
one way, and from the first step on. Three questions, over all pairs: are the first losses the same but for rounding; do
the losses that agreed suddenly part; does the difference lean to one side by more than its own scatter?
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vivace.records.proof import HarmOutcome, HarmTest, HarmTestKind
from vivace.tune.harm.claims import Claims

__all__ = ["compare_losses"]

_KIND = HarmTestKind.PAIRED_LOSSES
_FEWEST_TO_LEAN = 3  # steps
_JUMP = 30.0  # times what they had differed by before: rounding grows by less from one step to the next …
_JUMP_LEAST = 10.0  # … and a jump is at least so many tolerances high
_TOGETHER = 0.25  # of what another seed changes: up to there two runs go together
_LEAN = 4.0  # standard errors
_NOISE = 10.0  # times what a rerun of the unchanged job differs by
_ALONE = 5  # neighbouring differences are alike: so many steps count as one
_FEWEST = 2

Runs = Sequence[Sequence[float]]


def compare_losses(
    before: Runs, after: Runs, band: float | None, claims: Claims, rerun: tuple[Sequence[float], Sequence[float]] | None
) -> HarmTest:
    """``band``: how far another seed's losses lie; None where there is no other seed. ``rerun``: the losses of the
    unchanged job, twice with one seed: what chance alone does."""
    differences = [_relative(b, a) for b, a in zip(before, after, strict=True)]
    noise = np.abs(_relative(*rerun)) if rerun is not None and len(rerun[0]) else np.zeros(1)
    together = [d[: _steps_together(d, band, b)] for d, b in zip(differences, before, strict=True)]
    steps = min(len(d) for d in together)
    for says in (
        _first(differences, claims, noise),
        _jump(differences, claims, noise),
        _lean(together, claims, noise),
    ):
        if says:
            return HarmTest(kind=_KIND, outcome=HarmOutcome.FAILED, steps=steps, pairs=len(before), says=says)
    if steps < _FEWEST:
        return HarmTest(kind=_KIND, outcome=HarmOutcome.NOT_RUN, says="the runs part at their first steps")
    mean = float(np.mean(np.concatenate(together)))
    says = f"losses differ by {_share(mean)} on average over the {steps} steps in which the runs stay together"
    return HarmTest(kind=_KIND, outcome=HarmOutcome.PASSED, steps=steps, pairs=len(before), says=says)


def _relative(before: Sequence[float], after: Sequence[float]) -> np.ndarray:
    """A loss near zero is compared with the size of the others."""
    b, a = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    size = np.maximum(np.abs(b), 0.1 * (float(np.median(np.abs(b))) or 1.0))
    return (a - b) / size


def _steps_together(difference: np.ndarray, band: float | None, before: Sequence[float]) -> int:
    if band is None:
        return len(difference)
    apart = _TOGETHER * band / (float(np.median(np.abs(before))) or 1.0)
    beyond = np.flatnonzero(np.abs(difference) > apart)
    return int(beyond[0]) if beyond.size else len(difference)


def _first(differences: Sequence[np.ndarray], claims: Claims, noise: np.ndarray) -> str:
    """The very first loss has the same weights on both sides."""
    first = float(np.mean([d[0] for d in differences]))
    most = max(claims.tolerance.loss, _NOISE * float(noise[0]))
    if abs(first) > most:
        return f"the first loss differs by {_share(first)} (rounding explains {_share(most)} at most)"
    return ""


def _jump(differences: Sequence[np.ndarray], claims: Claims, noise: np.ndarray) -> str:
    if claims.leaves_steps_out:
        return ""
    least = claims.tolerance.loss
    for difference in differences:
        largest = 0.0
        for step, value in enumerate(np.abs(difference), 1):
            largest = max(largest, float(noise[:step].max()))
            if value > max(_JUMP_LEAST * least, _JUMP * max(0.1 * least, largest)):
                return f"losses agreed to {_share(largest)}, and differ by {_share(float(value))} at step {step}"
            largest = max(largest, float(value))
    return ""


def _lean(differences: Sequence[np.ndarray], claims: Claims, noise: np.ndarray) -> str:
    long = [d for d in differences if len(d) >= _FEWEST_TO_LEAN]
    if not long:
        return ""
    mean = float(np.mean([d.mean() for d in long]))
    errors = [float(d.std()) / math.sqrt(max(1.0, len(d) / _ALONE)) for d in long]
    error = math.sqrt(float(np.mean(np.square(errors))) / len(long))
    steps = min(map(len, long))
    if abs(mean) <= max(claims.lean, _LEAN * error, _NOISE * float(noise[:steps].mean())):
        return ""
    return f"losses are {_share(mean)} {'higher' if mean > 0 else 'lower'} over {steps} steps, at every seed alike"


def _share(share: float) -> str:
    return f"{100 * share:.2g} %" if abs(share) >= 1e-4 else f"{share:.0e}"

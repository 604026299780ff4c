"""L(N, D) = E + A / N^α + B / D^β, fitted on trained runs, and what it says about larger ones.

Hoffmann et al. 2022 (arXiv 2203.15556), approach 3: the logarithms of the losses are fitted with a Huber loss, so that
a run that went wrong does not decide. For given exponents the rest is linear, so only these two are searched. How sure
a prediction is: the fit is made again without each of the runs, and the range of all these fits is shown. That is no
confidence interval. How far it holds beyond the runs, nobody knows: the answer says how far it reaches.

Pure. Called by ``vivace plan scaling-law``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vivace.errors import UserError

__all__ = ["FEWEST_RUNS", "FLOPS_PER_TOKEN_AND_PARAM", "Fitted", "LossLaw", "TrainedRun", "fit", "fit_with_ranges"]

Array = npt.NDArray[np.float64]

FEWEST_RUNS = 6  # five unknowns
FLOPS_PER_TOKEN_AND_PARAM = 6.0  # Kaplan et al. 2020: forward and backward, without attention
_HUBER = 1e-3  # of the logarithm, as Hoffmann et al.
_EXPONENTS = np.linspace(0.05, 1.2, 24)
_ROUNDS = 7  # of a finer grid around the best: the last step is below 1e-4
_REWEIGHTED = 12


class TrainedRun(NamedTuple):
    params: float
    tokens: float
    loss: float


class LossLaw(NamedTuple):
    e: float
    a: float
    alpha: float
    b: float
    beta: float

    def loss(self, params: float, tokens: float) -> float:
        return float(self.e + self.a / params**self.alpha + self.b / tokens**self.beta)

    def best_split(self, flops: float) -> tuple[float, float]:
        """Parameters and tokens with the lowest loss for that much compute, at 6·N·D."""
        product = flops / FLOPS_PER_TOKEN_AND_PARAM
        share = self.beta / (self.alpha + self.beta)
        factor = (self.alpha * self.a / (self.beta * self.b)) ** (1 / (self.alpha + self.beta))
        params = factor * product**share
        return params, product / params


@dataclass(frozen=True)
class Fitted:
    law: LossLaw
    without_each: tuple[LossLaw, ...]
    """Fits that leave one run out."""
    relative_error: float
    """Of the fitted losses: root mean square."""
    left_out_error: float
    """Of the loss of each run, by the fit without it: root mean square."""
    runs: tuple[TrainedRun, ...]

    def range_of(self, params: float, tokens: float) -> tuple[float, float]:
        losses = [law.loss(params, tokens) for law in (self.law, *self.without_each)]
        return min(losses), max(losses)

    def reach(self, params: float, tokens: float) -> float:
        """How many times the compute of the largest run."""
        return params * tokens / max(run.params * run.tokens for run in self.runs)


def fit_with_ranges(runs: Sequence[TrainedRun]) -> Fitted:
    _check(runs)
    law = fit(runs)
    others = [[*runs[:place], *runs[place + 1 :]] for place in range(len(runs))]
    without_each = tuple(fit(some) for some in others)
    own = [law.loss(run.params, run.tokens) / run.loss - 1 for run in runs]
    left_out = [each.loss(run.params, run.tokens) / run.loss - 1 for each, run in zip(without_each, runs, strict=True)]
    return Fitted(law, without_each, _rms(own), _rms(left_out), tuple(runs))


def fit(runs: Sequence[TrainedRun]) -> LossLaw:
    params, tokens, losses = (np.array(column, dtype=np.float64) for column in zip(*runs, strict=True))
    # Scaled to the middle of the runs: else the columns differ by many orders of magnitude.
    middle = float(np.exp(np.log(params).mean())), float(np.exp(np.log(tokens).mean()))
    alphas = betas = _EXPONENTS
    alpha = beta = 0.0
    parts = np.zeros(3)
    for _ in range(_ROUNDS):
        grid = np.array([(one, other) for one in alphas for other in betas])
        ones = np.ones((len(grid), len(losses)))
        falls = [(values / scale) ** -grid[:, [place]] for place, (values, scale) in
                 enumerate(zip((params, tokens), middle, strict=True))]  # fmt: skip
        every, errors = _linear(np.stack([ones, *falls], axis=-1), losses)
        best = int(np.argmin(errors))
        (alpha, beta), parts = grid[best], every[best]
        alphas, betas = _around(alpha, alphas), _around(beta, betas)
    e, a, b = parts
    return LossLaw(float(e), float(a * middle[0] ** alpha), float(alpha), float(b * middle[1] ** beta), float(beta))


def _linear(columns: Array, losses: Array) -> tuple[Array, Array]:
    """E, A and B for each pair of exponents, none below 0, and the Huber loss of the logarithms; found by reweighting
    least squares. ``columns``: pairs × runs × 3."""
    weights = np.broadcast_to(1.0 / losses, columns.shape[:2])
    parts = _not_negative(columns, losses, weights)
    for _ in range(_REWEIGHTED):
        residuals = _residuals(columns, parts, losses)
        weights = np.sqrt(np.minimum(1.0, _HUBER / np.maximum(residuals, 1e-15))) / losses
        parts = _not_negative(columns, losses, weights)
    residuals = _residuals(columns, parts, losses)
    small = residuals <= _HUBER
    return parts, np.where(small, residuals**2 / 2, _HUBER * (residuals - _HUBER / 2)).sum(axis=1)


def _residuals(columns: Array, parts: Array, losses: Array) -> Array:
    fitted = np.einsum("grc,gc->gr", columns, parts)
    return np.abs(np.log(np.maximum(fitted, 1e-12)) - np.log(losses))


def _not_negative(columns: Array, losses: Array, weights: Array) -> Array:
    """Weighted least squares over three unknowns: of all sets of unknowns that are 0, the best without a negative."""
    weighted, wanted = columns * weights[..., None], losses * weights
    best = np.zeros((len(columns), 3))
    errors = np.full(len(columns), np.inf)
    for kept in ((0, 1, 2), (0, 1), (0, 2), (1, 2), (0,), (1,), (2,)):
        chosen = weighted[..., list(kept)]
        normal = np.einsum("gri,grj->gij", chosen, chosen) + 1e-14 * np.eye(len(kept))
        right = np.einsum("gri,gr->gi", chosen, wanted)
        parts = np.zeros((len(columns), 3))
        parts[:, list(kept)] = np.linalg.solve(normal, right[..., None])[..., 0]
        error = ((np.einsum("grc,gc->gr", weighted, parts) - wanted) ** 2).sum(axis=1)
        better = (parts >= 0).all(axis=1) & (error < errors)
        best[better], errors[better] = parts[better], error[better]
        if len(kept) == 3 and better.all():
            break
    return best


def _around(value: float, grid: Array) -> Array:
    step = float(grid[1] - grid[0])
    return np.linspace(max(1e-3, value - step), value + step, 7)


def _rms(values: Sequence[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _check(runs: Sequence[TrainedRun]) -> None:
    if len(runs) < FEWEST_RUNS:
        hint = "train models of three sizes or more, each with three amounts of data or more"
        raise UserError(f"{len(runs)} runs are too few for five unknowns; {FEWEST_RUNS} are the least", hint=hint)
    for name, values in (("params", {run.params for run in runs}), ("tokens", {run.tokens for run in runs})):
        if len(values) < 3:
            raise UserError(f"the runs have {len(values)} different {name}: too few to see how the loss falls with it")

"""The options of ``vivace plan`` that say how much to train and at which price, as one question.

An option that does not go with the model is refused, not ignored. Called by ``vivace.cli.plan``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vivace.errors import UserError
from vivace.plan.facts.limits import at_least, more_than_zero
from vivace.plan.grading.words import number
from vivace.plan.models.transformer import Transformer
from vivace.plan.run.whole_run import RunQuestion

__all__ = ["Amount", "Prices", "read_tokens", "run_question"]

IMAGENET = 1_281_167


@dataclass(frozen=True)
class Amount:
    """How much training."""

    tokens: str | None = None
    epochs: float | None = None
    dataset_size: float | None = None


@dataclass(frozen=True)
class Prices:
    per_gpu_hour: float | None = None
    currency: str = "EUR"
    grid: str = "fr"
    pue: float | None = None
    qos: str | None = None


def read_tokens(text: str) -> float:
    value = number(text)
    if value is None or not 0 < value < math.inf:
        raise UserError(f"--tokens {text!r} is not a number of tokens", hint="write 1e12, 300B or 15T")
    return value


def run_question(model: Transformer | str, amount: Amount, prices: Prices) -> RunQuestion | None:
    """None when no amount was given: only the step is planned."""
    _check(amount, prices)
    if isinstance(model, Transformer):
        _refuse_for_transformers(model.name, amount)
    elif amount.tokens is not None:
        raise UserError(f"--tokens is for transformers, and {model} is an image model", hint="use --epochs")
    if amount.tokens is None and amount.epochs is None:
        return None
    tokens = None if amount.tokens is None else read_tokens(amount.tokens)
    samples = (amount.epochs or 0.0) * (amount.dataset_size or IMAGENET)
    return RunQuestion(samples, tokens, prices.per_gpu_hour, prices.currency, prices.grid, prices.pue, prices.qos)


def _check(amount: Amount, prices: Prices) -> None:
    at_least("--price", prices.per_gpu_hour, 0)
    at_least("--pue", prices.pue, 1)
    more_than_zero("--epochs", amount.epochs)
    more_than_zero("--dataset-size", amount.dataset_size)


def _refuse_for_transformers(name: str, amount: Amount) -> None:
    if amount.epochs is None:
        return
    if amount.tokens is not None:
        raise UserError("--tokens and --epochs both say how long to train", hint="give one of them")
    if amount.dataset_size is None:
        raise UserError(
            f"--epochs of {name} need --dataset-size, the number of sequences", hint="or give --tokens 1e12 instead"
        )

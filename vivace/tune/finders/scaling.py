"""What another batch size changes for the training, as proposals: it is another optimisation problem."""

from __future__ import annotations

import math

from vivace.records.measurement import Measurement
from vivace.records.search import BatchTried

__all__ = ["advice_for"]

_SQUARE_ROOT = ("adam", "lamb", "rmsprop", "adagrad", "adafactor", "lion")


def advice_for(own: BatchTried, chosen: BatchTried, record: Measurement) -> tuple[str, ...]:
    """``record`` is the script's own run: its optimizer decides on the rule."""
    before, after = own.global_batch_size or own.batch_size, chosen.global_batch_size or chosen.batch_size
    if not before or not after or before == after:
        return ()
    factor = after / before
    lines = [
        f"the global batch goes from {before:,} to {after:,} ({factor:g}×): another optimisation problem "
        "(risk: algorithmic). The number of steps in an epoch changes, and with it schedules that count steps",
        _learning_rate(factor, record),
    ]
    if after < before:
        lines.append(_accumulate(before, after))
    elif chosen.ranks > 1:
        lines.append(f"to keep the global batch of {before:,}: run it on fewer ranks ({chosen.ranks} now)")
    else:
        lines.append(
            f"to keep the global batch of {before:,}, stay at {own.size}; a recipe for {after:,} that accumulated "
            "gradients no longer needs to"
        )
    return tuple(lines)


def _learning_rate(factor: float, record: Measurement) -> str:
    names = [optimizer.name for optimizer in record.structure.optimizers]
    if names and all(name.lower().startswith(_SQUARE_ROOT) for name in names):
        return f"proposal: multiply the learning rate by {math.sqrt(factor):.3g} (square-root rule, {names[0]})"
    if names and all(name.lower().startswith("sgd") for name in names):
        return f"proposal: multiply the learning rate by {factor:.3g} (linear rule, SGD), with a warm-up"
    return (
        f"proposal: multiply the learning rate by {factor:.3g} for SGD (linear rule) or by {math.sqrt(factor):.3g} for "
        "Adam (square-root rule)"
    )


def _accumulate(before: int, after: int) -> str:
    steps = before / after
    whole = (
        f"{round(steps)} micro-batches" if steps == round(steps) else f"about {steps:.2f} micro-batches (no divisor)"
    )
    return f"to keep the global batch of {before:,}: accumulate gradients over {whole} of {after:,}, loss divided by it"

"""What another batch size changes for the training, as proposals: it is another optimisation problem."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vivace.records.measurement import Measurement
from vivace.records.search import BatchTried

__all__ = ["advice_for", "as_if_it_fitted"]

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


def as_if_it_fitted(own: BatchTried, trained: Sequence[BatchTried]) -> BatchTried:
    """The script's own size, which did not train, with the batch that it would have had.

    In proportion to a size that trained; the same where sizes that trained had all the same (a flag about the parts
    of an accumulated batch).
    """
    first, last = trained[0], trained[-1]
    before = first.global_batch_size or first.batch_size or 0
    fixed = len(trained) > 1 and before == (last.global_batch_size or last.batch_size or 0)
    whole = before if fixed else round(before * own.size / first.size)
    return own.model_copy(update={"global_batch_size": whole, "ranks": first.ranks})


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

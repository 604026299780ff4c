"""Validation: every sample once over all ranks, the exact mean of the loss, the share of right answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from vivace.recipes.contrastive import paired
from vivace.recipes.feeding import Batch
from vivace.recipes.masking import IGNORED
from vivace.recipes.models import logits_of

__all__ = ["Evaluated", "evaluate"]


@dataclass(frozen=True)
class Evaluated:
    samples: int
    val_loss: float
    val_accuracy: float | None
    """Top-1; None where targets are no classes."""


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterator[Batch],
    prepare: Callable[[Tensor], Tensor],
    loss_of: Callable[[Tensor, Tensor], Tensor] | None,
    autocast: Callable[[], AbstractContextManager[Any]],
    flips: bool,
    temperature: float | None = None,
) -> Evaluated:
    """``loss_of`` is a loss of the user's own (a mean over its batch); None: cross-entropy.

    ``temperature``: of contrastive training. ``prepare`` gives two views of each image, the loss and the share of right
    answers are about their twins, among the views of one batch on one rank.
    """
    model.eval()
    sums: Tensor | None = None  # loss, right answers, targets, samples
    for batch in batches:
        inputs, targets = prepare(batch.inputs), batch.targets
        if not len(targets):
            continue
        with autocast():
            logits = logits_of(model(inputs))
            if flips:
                logits = (logits + logits_of(model(inputs.flip(-1)))) / 2
        if temperature is not None:
            logits, targets = paired(logits, temperature, all_ranks=False)
        found = _sums(logits, targets, loss_of, len(batch.targets))
        sums = found if sums is None else sums + found
    model.train()
    if sums is None:
        sums = torch.zeros(4, dtype=torch.float64, device=next(model.parameters()).device)
    if dist.is_initialized():
        dist.all_reduce(sums)
    loss, right, count, samples = sums.tolist()
    classes = loss_of is None
    return Evaluated(int(samples), loss / max(count, 1), right / max(count, 1) if classes else None)


def _sums(logits: Tensor, targets: Tensor, loss_of: Callable[[Tensor, Tensor], Tensor] | None, samples: int) -> Tensor:
    if loss_of is not None:
        loss, right, count = (
            loss_of(logits, targets).double() * samples,
            logits.new_zeros((), dtype=torch.float64),
            logits.new_tensor(samples, dtype=torch.float64),
        )
    else:
        logits, targets = logits.flatten(0, -2).float(), targets.flatten()
        loss = F.cross_entropy(logits, targets, reduction="sum").double()
        right, count = (logits.argmax(-1) == targets).sum().double(), (targets != IGNORED).sum().double()
    return torch.stack([loss, right, count, loss.new_tensor(samples)])

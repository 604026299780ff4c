"""Gradient accumulation: the same global batch in smaller pieces, when memory is the limit. By hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import memory_limit

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement


def find(m: Measurement) -> Found | None:
    limit = memory_limit(m)
    if limit is None or (m.micro_batches or 1) > 1 or (m.batch_size or 0) < 2:
        return None
    return Found(
        exposed_ms=0.0,  # it makes room, not speed
        evidence={"batch_size": m.batch_size, "backward_passes_per_step": m.micro_batches or 1.0, "limit": limit},
        says=f"{limit}; two passes of {(m.batch_size or 0) // 2} samples per step need about half the activations",
        by_hand=_LINES,
    )


_LINES = (
    "# loader of batch_size // 2\n"
    "for i, (inputs, targets) in enumerate(loader):\n"
    "    loss = criterion(model(inputs), targets) / 2\n"
    "    loss.backward()                      # under DDP, around all but the last: with model.no_sync():\n"
    "    if i % 2 == 1:\n"
    "        optimizer.step(); scheduler.step(); optimizer.zero_grad()"
)

PRACTICE = Practice(
    name="accumulation",
    title="gradient accumulation",
    family="memory",
    risk="algorithmic",
    source="DLO-JZ: large batches. R19: exhaust the methods of one GPU first.",
    why=(
        "Gradients of several small batches are added before one optimizer step: the gradient of the large batch, with "
        "the memory of the small one. With losses that are means over equal batches it is the same optimisation "
        "problem; batch norm is not, for it sees the small batches, nor is a mean over tokens when lengths differ. "
        "Small batches use a GPU less well: take it when the batch must be larger than what fits, not for speed."
    ),
    by_hand=_LINES,
    find=find,
)

"""Scaling curves: the same job on more GPUs, with the batch fixed (strong) or growing with them (weak).

Pure; calls the search for each count. Called by the CLI and ``budget.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vivace.errors import UserError
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.layouts.search import Found, search

__all__ = ["ScalingPoint", "default_counts", "scaling_curve"]


@dataclass(frozen=True)
class ScalingPoint:
    gpus: int
    best: Found
    efficiency: float
    """Throughput per GPU over that of the smallest count."""

    @property
    def samples_per_s(self) -> float:
        return self.best.job.global_batch / self.best.seconds


def default_counts(largest: int, per_node: int) -> list[int]:
    """Powers of two up to ``largest``, from one node (or one GPU when there is less)."""
    counts = [min(per_node, largest)]
    while counts[-1] * 2 <= largest:
        counts.append(counts[-1] * 2)
    return counts if counts[-1] == largest else [*counts, largest]


def scaling_curve(job: TransformerJob, counts: list[int], weak: bool = False) -> list[ScalingPoint]:
    """One point per count that can run the job at all. ``weak`` keeps the batch per GPU of the largest
    count.
    """
    points: list[ScalingPoint] = []
    per_gpu = job.global_batch / max(counts)
    for gpus in sorted(counts):
        batch = max(1, round(per_gpu * gpus)) if weak else job.global_batch
        try:
            best = search(replace(job, global_batch=batch), gpus, keep=1)[0]
        except UserError:
            continue  # too few GPUs to hold the model, or a batch that they do not divide
        rate = batch / best.seconds / gpus
        first = points[0].samples_per_s / points[0].gpus if points else rate
        points.append(ScalingPoint(gpus, best, rate / first))
    return points

"""Pipeline parallelism: which stage holds which layers, the bubble, and the micro-batches in flight.

Pure arithmetic; called by the time and memory models.
"""

from __future__ import annotations

from dataclasses import dataclass

from vivace.records.layout import Layout

__all__ = ["Stages", "bubble_fraction", "in_flight", "pipeline_seconds", "split_layers"]

# Share of the 1F1B bubble that is left: ZB-1P a third, ZB-V next to nothing (Qi et al. 2023).
BUBBLE_LEFT = {"1f1b": 1.0, "interleaved": 1.0, "gpipe": 1.0, "zb1p": 1 / 3, "zbv": 0.05}


@dataclass(frozen=True)
class Stages:
    """Layers on the first, a middle and the last stage (``first`` is also the only one without a
    pipeline).
    """

    first: int
    middle: int
    last: int
    count: int


def split_layers(layers: int, pipeline: int) -> Stages:
    """Equal shares where they divide; else embedding and head count as layers (BLOOM: 70 + 2 over 12
    stages).
    """
    if pipeline == 1:
        return Stages(layers, layers, layers, 1)
    if layers % pipeline == 0:
        share = layers // pipeline
        return Stages(share, share, share, pipeline)
    if (layers + 2) % pipeline == 0:
        share = (layers + 2) // pipeline
        return Stages(share - 1, share, share - 1, pipeline)
    share = -(-layers // pipeline)
    return Stages(share, share, max(1, layers - share * (pipeline - 1)), pipeline)


def bubble_fraction(pipeline: int, micro_batches: int, virtual_stages: int = 1, schedule: str = "1f1b") -> float:
    """Idle time over ideal time: (p - 1) / (v m), less for zero-bubble schedules."""
    return (pipeline - 1) / (virtual_stages * micro_batches) * BUBBLE_LEFT[schedule]


def pipeline_seconds(stage_seconds: list[float], micro_batches: int, layout: Layout) -> tuple[float, float]:
    """Time of all micro-batches through unequal stages: (busy time of the slowest stage, bubble)."""
    slowest = max(stage_seconds)
    fill = (sum(stage_seconds) - slowest) / layout.virtual_stages * BUBBLE_LEFT[layout.schedule]
    return micro_batches * slowest, fill


def in_flight(layout: Layout, micro_batches: int) -> float:
    """Micro-batches whose activations the first stage holds, counted in whole stages.

    1F1B holds min(p, m); interleaving adds (p - 1) / (p v); GPipe holds all; ZB-V holds as 1F1B.
    """
    p, v = layout.pipeline, layout.virtual_stages
    if p == 1:
        return 1.0
    if layout.schedule == "gpipe":
        return float(micro_batches)
    held = float(min(p, micro_batches))
    return held * (1 + (p - 1) / (p * v)) if v > 1 else held

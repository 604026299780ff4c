"""The question that the planner answers: one model, one machine, one layout, one batch.

A plain value without behaviour beyond shape arithmetic; made by the CLI, the search and the table reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vivace.plan.facts.frameworks import Framework, framework
from vivace.plan.facts.precision import Precision
from vivace.plan.machines.machine import Machine
from vivace.plan.models.transformer import Transformer
from vivace.records.layout import Layout

__all__ = ["Attention", "TransformerJob"]

Attention = Literal["flash", "fused-softmax", "eager"]


@dataclass(frozen=True)
class TransformerJob:
    model: Transformer
    machine: Machine
    layout: Layout
    global_batch: int
    seq_len: int
    precision: Precision
    software: str = "torch"
    attention: Attention = "flash"
    optimizer: str = "adamw"
    fused_optimizer: bool = False
    """One kernel over all states (PyTorch's ``fused=True``); Megatron and DeepSpeed always fuse."""
    loader_ms: float = 0.0
    """Time that the loader takes per step, when it was measured (hidden behind compute up to its length)."""
    compute_scale: float = 1.0
    """Calibration: measured over predicted compute time on the user's own GPU."""

    @property
    def framework(self) -> Framework:
        """What ``software`` does."""
        return framework(self.software)

    @property
    def micro_batches(self) -> int:
        return self.layout.micro_batches(self.global_batch)

    @property
    def tokens_per_step(self) -> int:
        return self.global_batch * self.seq_len

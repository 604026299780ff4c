"""``Engine``: how the techniques of a layout are to work, where there is a choice. Part of the trainer's settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vivace.records.base import Part

__all__ = ["Engine", "Precision"]

Precision = Literal["fp32", "bf16", "fp64"]


class Engine(Part):
    precision: Precision = Field("fp32", description="bf16: states in fp32, matrices in bf16, sums over ranks in fp32")
    compile: bool = Field(False, description="torch.compile, block by block")
    memory_budget: float | None = Field(
        None, ge=0, le=1, description="share of the activations that the compiler may keep; needs compile"
    )
    offload: bool = Field(False, description="sharded states live in the CPU's memory (fs only)")
    prefetch: int = Field(1, ge=0, description="blocks gathered ahead (fs only); 0: torch's choice")
    find_unused: bool = Field(False, description="dp only: some parameters get no gradient in some steps (slower)")
    sync_batch_norm: bool = Field(False, description="batch norms see the whole batch")

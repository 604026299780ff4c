"""What the planner knows of each training framework, as data: ``[framework.*]`` of ``data/constants.toml``.

Called by the time and memory models, the search and the table reader. None of them asks for a framework's
name; they ask what it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vivace.plan.facts.constants import cached_until_override, constants
from vivace.plan.facts.precision import PrecisionRecipe

__all__ = ["Framework", "framework"]

Loss = Literal["eager", "by steps", "fused"]


@dataclass(frozen=True)
class Framework:
    name: str
    stream: float
    launch_us: float
    optimizer_bytes: float
    data_overlap: float
    tensor_overlap_backward: float
    logit_fp32_bytes: float
    loss: Loss
    """Plain PyTorch's kernels; Megatron's vocabulary-parallel loss, one kernel after the other; or one fused kernel."""
    default_attention: Literal["flash", "fused-softmax"]
    precision_recipe: PrecisionRecipe
    """Who holds the fp32 copies of mixed precision (precision.py)."""
    runs_ahead: bool = True
    """Nothing in a step waits for the GPU: the processor is late only over a whole step, not layer by layer."""
    eager: bool = False
    """Plain PyTorch: its kernels (eager.py) and its allocator's blocks (allocator.py) are counted one by one."""
    compiles: bool = False
    """Elementwise kernels of image models are fused."""
    fused_kernels: bool = True
    """The activation of a gated block keeps three tensors, not four; the optimizer makes no temporaries."""
    pads_vocabulary: bool = False
    """To a multiple of 128 on each rank."""
    keeps_gradients: bool = False
    """From step to step; plain PyTorch frees them."""
    selects_attention_core: bool = False
    """Selective recomputation repeats the attention core; elsewhere every other operator (torchtitan's policy)."""
    scatters_boundaries: bool = False
    """Each rank of a tensor group sends its share over a pipeline boundary (scatter-gather, Narayanan 2021)."""
    splits_sequence: bool = False
    """Tensor parallelism splits the sequence too, unless told otherwise."""
    shards_optimizer: bool = False
    """ZeRO 1 unless told otherwise."""
    recomputes_by_default: bool = False
    """In its usual scripts, without flash attention."""
    flat_copies: bool = False
    """With ZeRO: flat copies of the gradients, and a bucket of 5e8 elements whatever the model's size."""
    gradient_buckets: bool = False
    """DistributedDataParallel's."""

    def recipe(self, zero: int) -> PrecisionRecipe:
        """Full sharding has a recipe of its own, whoever does it."""
        return "fsdp" if zero == 3 else self.precision_recipe


@cached_until_override
def framework(name: str) -> Framework:
    return Framework(name=name, **constants(f"framework.{name}"))

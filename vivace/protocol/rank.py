"""Which rank this process is, of how many, and how often the ranks were started."""

from __future__ import annotations

import os
import sys

__all__ = ["RANK_VARIABLE", "WORLD_VARIABLE", "is_split", "rank_and_world", "restart_count"]

RANK_VARIABLE, WORLD_VARIABLE = "VIVACE_RANK", "VIVACE_WORLD"


def rank_and_world() -> tuple[int, int]:
    """This process's rank and the number of ranks: vivace's own (``run --ranks``), torch.distributed's once it runs,
    else torchrun's or Slurm's variables; (0, 1) alone."""
    if RANK_VARIABLE in os.environ:
        return int(os.environ[RANK_VARIABLE]), int(os.environ[WORLD_VARIABLE])
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    for rank, world in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")):
        if os.environ.get(rank, "").isdecimal() and os.environ.get(world, "").isdecimal():
            return int(os.environ[rank]), int(os.environ[world])
    return 0, 1


def is_split() -> bool:
    """Whether this process is one of the ranks that vivace splits one training over: each sees the whole batch."""
    return int(os.environ.get(WORLD_VARIABLE, "1")) > 1


def restart_count() -> int:
    """How often torchrun (or Slurm) has started the ranks again: payloads of two starts are not one run."""
    counts = [os.environ.get(name, "") for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")]
    return sum(int(count) for count in counts if count.isdecimal())

"""What the parent asks of the measured process, carried in one environment variable as JSON."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass

__all__ = ["ENTRY", "HOME_VARIABLE", "VARIABLE", "Settings", "rank_and_world", "restart_count"]

VARIABLE = "VIVACE_INSIDE"
HOME_VARIABLE = "VIVACE_HOME"
ENTRY = "vivace.measure.inside.install"


@dataclass(frozen=True)
class Settings:
    """``folder`` receives the payloads; ``warmup_steps`` of None means: detect it.

    ``entry`` names the module whose ``install`` the bootstrap calls: this package's, or one that builds on it.
    ``practices`` and ``strict`` are for such a one. ``seed_offset`` of None leaves the script's seeds alone.
    """

    folder: str
    steps: int = 50
    warmup_steps: int | None = None
    profile_steps: int = 3
    sync_steps: int = 3
    count_flops: bool = True
    grad_norms: bool = False
    seed_offset: int | None = None
    entry: str = ENTRY
    measure: bool = True
    practices: tuple[str, ...] = ()
    strict: bool = False

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Settings:
        fields = json.loads(text)
        return cls(**{**fields, "practices": tuple(fields.get("practices", ()))})


def rank_and_world() -> tuple[int, int]:
    """This process's rank and the number of ranks: torch.distributed's once it runs, else torchrun's or Slurm's
    variables; (0, 1) alone."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    for rank, world in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")):
        if os.environ.get(rank, "").isdecimal() and os.environ.get(world, "").isdecimal():
            return int(os.environ[rank]), int(os.environ[world])
    return 0, 1


def restart_count() -> int:
    """How often torchrun (or Slurm) has started the ranks again: payloads of two starts are not one run."""
    counts = [os.environ.get(name, "") for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")]
    return sum(int(count) for count in counts if count.isdecimal())

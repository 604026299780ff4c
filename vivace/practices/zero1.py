"""Data parallelism with the optimizer's state shared out: ``vivace run --ranks 4 --with zero1``."""

from __future__ import annotations

from vivace.practices.ddp import Ddp, find
from vivace.practices.engine.practice import Practice
from vivace.scale.keeps import Keeps


class Zero1(Ddp):
    keeps = Keeps.SHARES_OF_STATES


PRACTICE = Practice(
    name="zero1",
    title="data parallelism over ranks, each with a share of the optimizer's state",
    family="structure",
    risk="rounding",
    source="DLO-JZ, ZeRO stage 1; ZeRO, arXiv 1910.02054.",
    why=(
        "As ddp; and each rank keeps the optimizer's state of its share of the parameters only. With Adam in fp32 that "
        "saves 8 bytes per parameter on all but one rank. New values are sent round after each step. Needs --ranks."
    ),
    by_hand=(
        "optimizer = torch.distributed.optim.ZeroRedundancyOptimizer(\n"
        "    model.parameters(), optimizer_class=torch.optim.AdamW, lr=lr\n"
        ")  # beside DistributedDataParallel; consolidate_state_dict() before saving"
    ),
    find=find,
    change=Zero1,
    excludes=("ddp", "fsdp", "optimizer", "accumulation"),
    order=5,
)

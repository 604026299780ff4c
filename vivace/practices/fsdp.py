"""Data parallelism with parameters, gradients and optimizer states sharded: ``vivace run --ranks 4 --with fsdp``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vivace.practices.ddp import Ddp, find
from vivace.practices.engine.practice import Practice
from vivace.scale.keeps import Keeps

if TYPE_CHECKING:
    from vivace.scale.place import ScalePlace


class Fsdp(Ddp):
    keeps = Keeps.SHARES_OF_ALL

    def over_ranks(self, place: ScalePlace) -> None:
        from vivace.scale.fsdp2 import missing_feature

        if (reason := missing_feature()) is not None:
            if place.rank == 0:
                sys.stderr.write(f"vivace: fsdp cannot run here: {reason}; --with zero1 shares out the states\n")
            raise SystemExit(2)
        super().over_ranks(place)

    def tell(
        self, split: list[str], whole: dict[str, str], loaded: dict[str, str], world: int, more: list[str]
    ) -> None:
        """A model that every rank runs whole is sharded all the same."""
        super().tell(split, whole, loaded, world, more)
        if self.done is None and more:
            self.done = self.refused


PRACTICE = Practice(
    name="fsdp",
    title="data parallelism over ranks, each with a share of the parameters",
    family="structure",
    risk="rounding",
    source="DLO-JZ, ZeRO stage 3 and FSDP; PyTorch FSDP2 (fully_shard); ZeRO, arXiv 1910.02054.",
    why=(
        "As ddp; and each rank keeps a share of the parameters, their gradients and the optimizer's state. The blocks "
        "of the model are gathered when they compute, and freed again. For models that do not fit on one GPU with "
        "their optimizer. Needs --ranks."
    ),
    by_hand=(
        "for block in model.blocks:\n"
        "    torch.distributed.fsdp.fully_shard(block)\n"
        "torch.distributed.fsdp.fully_shard(model)\n"
        "optimizer = torch.optim.AdamW(model.parameters(), lr=lr)  # after sharding, or it trains nothing;\n"
        "# and what ddp needs; checkpoints by torch.distributed.checkpoint.state_dict"
    ),
    find=find,
    change=Fsdp,
    excludes=("ddp", "zero1", "optimizer", "accumulation"),
    order=5,
)

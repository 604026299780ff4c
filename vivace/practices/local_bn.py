"""Batch norm over each rank's part of the batch: ``vivace run --ranks 4 --local-bn``. Another training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.ddp import find
from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Practice

if TYPE_CHECKING:
    from vivace.scale.place import ScalePlace


class LocalBn(Change):
    """Without ranks: batch norm over so many parts of the batch, one after the other. A proof compares the two."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        if argument is not None and (not argument.isdecimal() or int(argument) < 1):
            raise ValueError(f"{argument!r} is not a number of parts")
        self.parts = int(argument or 1)
        self._is_a_rank = False

    def over_ranks(self, place: ScalePlace) -> None:
        from vivace.scale import local_norms

        self._is_a_rank = True
        local_norms.keep_local(place.world, lambda: self.applied(f"batch norm over the part of each of {place.world}"))

    def flags(self) -> None:
        if self._is_a_rank or self.done is not None:
            return
        if self.parts < 2:
            raise NotApplicable("one part of the batch is the batch: local_bn=4")
        from vivace.scale import local_norms

        local_norms.in_parts_everywhere(self.parts)
        self.applied(f"batch norm over {self.parts} parts of the batch")


PRACTICE = Practice(
    name="local_bn",
    title="batch norm over each rank's part of the batch",
    family="structure",
    risk="algorithmic",
    source="PyTorch DistributedDataParallel without SyncBatchNorm; ghost batch norm, arXiv 1705.08741.",
    why=(
        "Batch norm over the whole batch needs two small messages for every layer and pass, which cost time on slow "
        "networks. Over each rank's part it needs none; statistics are those of fewer samples, as with "
        "DistributedDataParallel. It is another training, equal to one process whose batch norm sees as many parts. "
        "Running statistics are the means of the ranks'. Needs --ranks."
    ),
    by_hand="model = DistributedDataParallel(model)  # and no convert_sync_batchnorm",
    find=find,
    change=LocalBn,
    argument="PARTS",
    order=4,
)

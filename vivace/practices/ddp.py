"""Data parallelism for a script that knows nothing of it: ``vivace run --ranks 4 --with ddp``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.scale.keeps import Keeps

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement
    from vivace.scale.place import ScalePlace


class Ddp(Change):
    """The work is done in ``vivace.scale``; here it is told what became of it."""

    keeps = Keeps.ALL

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.is_a_rank = False

    def over_ranks(self, place: ScalePlace) -> None:
        from vivace.scale.install import install

        self.is_a_rank, self.refused = True, "no model was called"
        install(place, self.keeps, self.tell)

    def flags(self) -> None:
        if not self.is_a_rank:
            raise NotApplicable("the command runs as one process: --ranks 2, or more")

    def tell(
        self, split: list[str], whole: dict[str, str], loaded: dict[str, str], world: int, more: list[str]
    ) -> None:
        """After each new model and dataset: ``whole`` and ``loaded`` say why every rank runs or loads one as it is."""
        notes = [f"{name} runs whole on every rank: {reason}" for name, reason in whole.items()]
        if split:
            notes += [f"every rank loads all of {name}: {reason}" for name, reason in loaded.items()]
            self.done = "; ".join([f"{', '.join(split)} split over {world} ranks", *more, *notes])
        elif notes:
            self.refused = "; ".join([*more, *notes])


def find(_m: Measurement) -> Found | None:
    """More ranks are the user's decision, not a defect."""
    return None


PRACTICE = Practice(
    name="ddp",
    title="data parallelism over ranks, the script unedited",
    family="structure",
    risk="rounding",
    source="DLO-JZ, distribution: data parallelism; PyTorch DistributedDataParallel.",
    why=(
        "Every rank computes its part of each batch, and gradients are averaged. The script still sees the whole "
        "batch: its losses, metrics, schedules and files are those of one process. Needs --ranks."
    ),
    by_hand=(
        "torch.distributed.init_process_group()\n"
        "model = torch.nn.parallel.DistributedDataParallel(model)\n"
        "sampler = DistributedSampler(dataset)  # and sampler.set_epoch(epoch), a loader with it, a batch per rank,\n"
        "# metrics reduced over ranks, and only rank 0 prints and saves"
    ),
    find=find,
    change=Ddp,
    excludes=("zero1", "fsdp", "accumulation"),
    order=5,
)

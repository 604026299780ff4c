"""Persistent workers: the loader's processes live on between epochs instead of being started again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.kept_workers import Kept, keep_the_order
from vivace.practices.engine.loaders import epoch_starts_ms, spot, told_of_epochs
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import phase_ms, step_ms
from vivace.practices.engine.step_model import Shares, share_saved

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.03
_SAVED = Shares(0.85, 0.4, 1.0)  # of the starts; the first batch of an epoch still has to be made


class PersistentWorkers(Change):
    def flags(self) -> None:
        keep_the_order()

    def loader(self, arguments: dict[str, Any]) -> None:
        if arguments["num_workers"] == 0:
            raise NotApplicable("the loader has no workers to keep")
        if arguments["persistent_workers"]:
            raise NotApplicable("the loader already keeps its workers")
        if told_of_epochs(arguments["dataset"]):
            raise NotApplicable("the dataset is told of each epoch (set_epoch), which workers that live on do not hear")
        arguments["persistent_workers"] = Kept(True)
        self.applied("workers live on between epochs")


def find(m: Measurement) -> Found | None:
    restarting = [one for one in m.loaders if one.num_workers and not one.persistent_workers and one.epochs]
    if not restarting:
        return None
    loader = max(restarting, key=epoch_starts_ms)
    exposed = min(epoch_starts_ms(loader) * (m.micro_batches or 1.0), phase_ms(m, "loader"))
    if exposed < _SMALLEST_SHARE * step_ms(m):
        return None
    start = loader.epoch_start_ms / loader.epochs
    again = loader.made > 1
    return Found(
        exposed_ms=exposed,
        likely=share_saved(exposed, _SAVED),
        evidence={
            "epochs_begun": loader.epochs,
            "batches": loader.batches,
            "epoch_start_ms": round(start, 3),
            "num_workers": loader.num_workers,
            "loaders_made": loader.made,
        },
        says=(
            f"every epoch of {loader.batches / loader.epochs:.0f} batches starts {loader.num_workers} workers again: "
            f"{start:.0f} ms until its first batch, {exposed:.1f} ms per step"
        ),
        where=spot(loader),
        why_not="the script makes a new loader for every epoch: make one before the loop" if again else None,
        by_hand=f"loader = DataLoader(…, num_workers={loader.num_workers}, persistent_workers=True)  # made once",
    )


PRACTICE = Practice(
    name="persistent_workers",
    title="workers kept between epochs",
    family="loader",
    risk="exact",
    same_losses=False,
    source="R1: asynchronous loading. DLO-JZ, DataLoader lab: persistent_workers.",
    why=(
        "By default a loader ends its workers after every epoch and starts new ones: processes, imports, a copy of the "
        "dataset, an empty buffer. With short epochs that is a large part of the time. Workers that live on keep the "
        "copy of the dataset that they began with: not for a dataset that the script changes between epochs. Random "
        "augmentations go on drawing where they stopped: the same distribution, not the same draws."
    ),
    by_hand="loader = DataLoader(dataset, …, num_workers=8, persistent_workers=True)   # made once, before the epochs",
    other_draws=True,
    find=find,
    change=PersistentWorkers,
    order=15,
)

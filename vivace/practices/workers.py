"""Loader workers: batches are prepared by other processes while the model computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.cores import usable_cores
from vivace.practices.engine.kept_workers import Kept, keep_the_order
from vivace.practices.engine.loaders import (
    most_saved_ms,
    pinning_is_slowest,
    rare_waits,
    sends_much,
    spot,
    told_of_epochs,
    waited_for,
    waits_ms,
)
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import phase_ms, step_ms

if TYPE_CHECKING:
    from vivace.records.measurement import Loader, Measurement

_SMALLEST_SHARE = 0.05
_MOST = 16


class Workers(Change):
    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        if argument is not None and not (argument.isdecimal() and int(argument) > 0):
            raise ValueError(f"{argument!r} is not a number of workers")

    def flags(self) -> None:
        keep_the_order()

    def loader(self, arguments: dict[str, Any]) -> None:
        wanted = int(self.argument) if self.argument else min(_MOST, usable_cores())
        if isinstance(arguments["dataset"], IterableDataset):
            raise NotApplicable(
                "the dataset is iterable: workers would each yield all of it, unless it shares the work"
            )
        if arguments["num_workers"] == wanted:
            raise NotApplicable(f"the loader already has {wanted} workers")
        arguments["num_workers"] = wanted
        if not arguments["persistent_workers"] and not told_of_epochs(arguments["dataset"]):
            arguments["persistent_workers"] = Kept(True)  # or every epoch starts them again
        kept = ", kept between epochs" if arguments["persistent_workers"] else ""
        self.applied(f"{wanted} workers{kept}")


def find(m: Measurement) -> Found | None:
    loader = waited_for(m)
    if loader is None:
        return None
    # Without workers an epoch starts none.
    waits = waits_ms(m, loader) if loader.num_workers else phase_ms(m, "loader")
    if waits < _SMALLEST_SHARE * step_ms(m) or (loader.num_workers and rare_waits(m, loader)):
        return None  # nothing to win, or the workers keep up but for accidents: see prefetch
    if pinning_is_slowest(loader):
        return None if sends_much(m, loader) else _pinning(waits, loader)
    cores = max(1, int(m.machine.cpu.usable_cores) // m.ranks_per_host)
    wanted = min(_MOST, cores)
    if loader.num_workers >= wanted:
        return _not_enough_cores(waits, loader, cores)
    return Found(
        exposed_ms=min(waits, most_saved_ms(m, loader, wanted)),
        evidence={"loader_wait_ms": round(waits, 3), "num_workers": loader.num_workers, "usable_cores": cores},
        says=f"every step waits {waits:.1f} of {step_ms(m):.1f} ms for a loader of {loader.num_workers} workers",
        where=spot(loader),
        setting=f"workers={wanted}",
        by_hand=lines(str(wanted)),
        why_not="the dataset is iterable: it must share the work between workers itself" if loader.iterable else None,
        also_try=tuple(f"workers={n}" for n in (wanted // 2, 2 * wanted) if 0 < n <= _MOST and n != loader.num_workers),
    )


def _not_enough_cores(waits: float, loader: Loader, cores: int) -> Found:
    """There are as many workers as cores: more will not help, less work per sample will."""
    return Found(
        exposed_ms=waits,
        evidence={"loader_wait_ms": round(waits, 3), "num_workers": loader.num_workers, "usable_cores": cores},
        says=(
            f"every step waits {waits:.1f} ms for the loader although its {loader.num_workers} workers fill {cores} "
            "cores: "
            "decode smaller images, store the data decoded, or augment on the GPU"
        ),
        where=spot(loader),
        why_not="all cores are in use; the work per sample must shrink",
    )


def _pinning(waits: float, loader: Loader) -> Found:
    piled_up = loader.unpinned / loader.batches
    return Found(
        exposed_ms=waits,
        evidence={"loader_wait_ms": round(waits, 3), "num_workers": loader.num_workers, "unpinned": round(piled_up, 1)},
        says=(
            f"every step waits {waits:.1f} ms for the loader although {piled_up:.1f} batches of its "
            f"{loader.num_workers} workers lie there and wait to be pinned: one thread does that"
        ),
        where=spot(loader),
        by_hand="DataLoader(…, pin_memory=False)   # or fewer, larger tensors in a batch: each costs that thread time",
        why_not="more workers do not help: the thread that pins batches is the slowest",
    )


def lines(workers: str) -> str:
    return f"DataLoader(…, num_workers={workers}, persistent_workers=True)"


PRACTICE = Practice(
    name="workers",
    title="DataLoader workers",
    family="loader",
    risk="exact",
    same_losses=False,
    source="R1: asynchronous loading and augmentation, num_workers > 0. DLO-JZ, DataLoader lab.",
    why=(
        "With num_workers=0 the training process prepares every batch itself while the GPU waits. Workers prepare the "
        "next batches meanwhile. As many as the cores that the process may use, no more. Random augmentations draw "
        "other numbers in other workers: the same distribution, not the same draws."
    ),
    by_hand="loader = DataLoader(dataset, batch_size=…, num_workers=8, persistent_workers=True)",
    find=find,
    change=Workers,
    argument="N",
    lines=lines,
    order=10,
)

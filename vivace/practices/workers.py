"""Loader workers: batches are prepared by other processes while the model computes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import phase_ms, step_ms

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.03
_MOST = 16


class Workers(Change):
    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        if argument is not None and not (argument.isdecimal() and int(argument) > 0):
            raise ValueError(f"{argument!r} is not a number of workers")

    def loader(self, arguments: dict[str, Any]) -> None:
        wanted = int(self.argument) if self.argument else _usable_cores()
        if isinstance(arguments["dataset"], IterableDataset) and arguments["num_workers"] == 0:
            raise NotApplicable(
                "the dataset is iterable: workers would each yield all of it, unless it shares the work"
            )
        if arguments["num_workers"] == wanted:
            raise NotApplicable(f"the loader already has {wanted} workers")
        arguments["num_workers"] = wanted
        if wanted and arguments.get("persistent_workers") is False:
            arguments["persistent_workers"] = True  # or every epoch starts them again
        self.applied(f"{wanted} workers, kept between epochs")


def _usable_cores() -> int:
    return max(1, min(_MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))


def find(m: Measurement) -> Found | None:
    waits = phase_ms(m, "loader")
    loaders = [loader for loader in m.loaders if loader.batch_size is not None or loader.num_workers]
    if not loaders or waits < _SMALLEST_SHARE * step_ms(m):
        return None
    cores = max(1, int(m.machine.cpu.usable_cores) // max(1, len(m.ranks)))
    loader = max(loaders, key=lambda one: one.num_workers)
    wanted = min(_MOST, cores)
    if loader.num_workers >= wanted and loader.num_workers > 0:
        return _not_enough_cores(m, waits, loader.num_workers, cores)
    iterable = loader.iterable and loader.num_workers == 0
    return Found(
        exposed_ms=waits,
        evidence={"loader_wait_ms": round(waits, 3), "num_workers": loader.num_workers, "usable_cores": cores},
        says=f"every step waits {waits:.1f} of {step_ms(m):.1f} ms for a loader of {loader.num_workers} workers",
        where=(loader.where.file, loader.where.line) if loader.where else None,
        setting=f"workers={wanted}",
        by_hand=f"DataLoader(…, num_workers={wanted}, persistent_workers=True)",
        why_not="the dataset is iterable: it must share the work between workers itself" if iterable else None,
        also_try=tuple(f"workers={n}" for n in (wanted // 2, 2 * wanted) if 0 < n <= _MOST and n != loader.num_workers),
    )


def _not_enough_cores(m: Measurement, waits: float, workers: int, cores: int) -> Found:
    """There are as many workers as cores: more will not help, less work per sample will."""
    return Found(
        exposed_ms=waits,
        evidence={"loader_wait_ms": round(waits, 3), "num_workers": workers, "usable_cores": cores},
        says=(
            f"every step waits {waits:.1f} ms for the loader although its {workers} workers fill {cores} cores: "
            "decode smaller images, store the data decoded, or augment on the GPU"
        ),
        why_not="all cores are in use; the work per sample must shrink",
    )


PRACTICE = Practice(
    name="workers",
    title="DataLoader workers",
    family="loader",
    risk="exact",
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
    order=10,
)

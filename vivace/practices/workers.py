"""Loader workers: batches are prepared by other processes while the model computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from vivace.practices.engine.practice import Found, Practice, Saved
from vivace.practices.engine.pricing import on_gpu, phase_ms, step_ms
from vivace.practices.engine.torch_later import torch
from vivace.practices.engine.worker_counts import cores_of_a_rank, most_workers, needed_workers, they_wait

if TYPE_CHECKING:
    from vivace.records.measurement import Loader, Measurement

_SMALLEST_SHARE = 0.05
_MOST = 16
# How much longer the rest of a step takes beside workers, what fetching a batch costs, and what a worker does of the
# work of a process alone on its core: usual, least, most. 83.1 → 11.9 ms where 10.9 were not loading (R1 in
# planted_defects.csv), 41.7 → 23.3 where 17.8 were not (lightning_module), 466 ms of work a batch by 16 workers in
# 44 ms (image_classifier-3 in public_scripts_trials.csv).
_WITH_WORKERS = (1.15, 0.5, 0.65), (1.5, 2.0, 0.4), (1.0, 0.0, 1.0)


class Workers(Change):
    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        if argument is not None and not (argument.isdecimal() and int(argument) > 0):
            raise ValueError(f"{argument!r} is not a number of workers")

    def flags(self) -> None:
        keep_the_order()

    def loader(self, arguments: dict[str, Any]) -> None:
        wanted = int(self.argument) if self.argument else min(_MOST, usable_cores())
        if isinstance(arguments["dataset"], torch.utils.data.IterableDataset):
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
    waits = _waits_ms(m, loader)
    if waits < _SMALLEST_SHARE * step_ms(m) or (loader.num_workers and rare_waits(m, loader)):
        return None  # nothing to win, or the workers keep up but for accidents: see prefetch
    if pinning_is_slowest(loader):
        return None if sends_much(m, loader) else _pinning(waits, loader)
    cores = cores_of_a_rank(m)
    wanted = _wanted(m, loader, waits, cores)
    if loader.num_workers >= wanted:
        return _no_more(waits, loader, cores, they_wait(m))
    return Found(
        exposed_ms=min(waits, most_saved_ms(m, loader, wanted)),
        likely=_likely(m, loader, wanted, cores),
        evidence={
            "loader_wait_ms": round(waits, 3),
            "num_workers": loader.num_workers,
            "usable_cores": cores,
            **({} if m.workers_busy is None else {"workers_busy": round(m.workers_busy, 3)}),
        },
        says=f"every step waits {waits:.1f} of {step_ms(m):.1f} ms for a loader of {loader.num_workers} workers",
        where=spot(loader),
        setting=f"workers={wanted}",
        by_hand=lines(str(wanted)),
        why_not="the dataset is iterable: it must share the work between workers itself" if loader.iterable else None,
    )


def _wanted(m: Measurement, loader: Loader, waits: float, cores: int) -> int:
    """As many as cores. Workers that wait themselves leave cores free: then as many as the steps need."""
    if loader.num_workers and they_wait(m):
        needed = max(2 * loader.num_workers, needed_workers(loader, step_ms(m), waits))
        return min(needed, most_workers(m, loader))
    return min(_MOST, cores)


def _waits_ms(m: Measurement, loader: Loader) -> float:
    """Without workers an epoch starts none."""
    return waits_ms(m, loader) if loader.num_workers else phase_ms(m, "loader")


def _likely(m: Measurement, loader: Loader, workers: int, cores: int) -> Saved:
    """The rest of the step, slowed down by the workers beside it, or the rate at which they make batches."""
    step = step_ms(m)
    one_batch_ms = loader.num_workers * step if loader.num_workers else phase_ms(m, "loader")
    computing_ms = one_batch_ms * (1.0 if m.workers_busy is None else m.workers_busy)
    rest_ms = max(0.0, step - _waits_ms(m, loader))

    def saved_ms(slower: float, fetch_ms: float, efficiency: float) -> float:
        supply = one_batch_ms / (workers * efficiency)
        shared = 0.0 if on_gpu(m) else (rest_ms * (m.structure.threads or 1) + computing_ms) / cores
        return step - max(slower * rest_ms + fetch_ms, supply, shared)

    return Saved(*(saved_ms(*figures) for figures in _WITH_WORKERS))


def _no_more(waits: float, loader: Loader, cores: int, waiting: bool) -> Found:
    """There are as many workers as make sense: more will not help, less work per sample will."""
    evidence: dict[str, float | int | str | bool | None] = {
        "loader_wait_ms": round(waits, 3),
        "num_workers": loader.num_workers,
        "usable_cores": cores,
    }
    if waiting:
        return Found(
            exposed_ms=waits,
            evidence=evidence,
            says=(
                f"every step waits {waits:.1f} ms for the loader although it has {loader.num_workers} workers, which "
                "mostly wait themselves, for storage or a network: keep the data closer, or read larger pieces"
            ),
            where=spot(loader),
            why_not=f"more than {loader.num_workers} workers take too much memory, or do not help any more",
        )
    return Found(
        exposed_ms=waits,
        evidence=evidence,
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
        "next batches meanwhile. As many as the cores that the process may use; more only where the workers mostly "
        "wait for storage. Random augmentations draw other numbers in other workers: the same distribution, not the "
        "same draws."
    ),
    by_hand="loader = DataLoader(dataset, batch_size=…, num_workers=8, persistent_workers=True)",
    other_draws=True,
    find=find,
    change=Workers,
    argument="N",
    lines=lines,
    order=10,
)

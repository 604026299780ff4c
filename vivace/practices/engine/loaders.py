"""What the practices of the loader family ask of a DataLoader's arguments and of the waits that were measured."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from vivace.practices.engine.pricing import copies_to_gpu, phase_ms, step_ms

if TYPE_CHECKING:
    from vivace.records.measurement import Loader, Measurement

__all__ = [
    "epoch_starts_ms", "most_saved_ms", "pinning_is_slowest", "rare_waits", "sends_much", "sent_mib", "spot",
    "told_of_epochs", "waited_for", "waits_ms",
]  # fmt: skip


_LONG = 0.05  # of a step: a shorter wait is not worth a word
_MUCH_GIB_PER_S = 1.0
_PILE = 1.0  # batches at a fetch, on average; where workers are the slowest there are none
_RARE = 0.25  # of the steps: more frequent waits are no accidents


def told_of_epochs(dataset: Any) -> bool:
    """Whether the script tells the dataset of each epoch: workers that are kept hold a copy that would not hear it."""
    return callable(getattr(dataset, "set_epoch", None))


def waited_for(m: Measurement) -> Loader | None:
    """The loader that the training waits for most."""
    counted = [loader for loader in m.loaders if loader.batches]
    if counted:
        return max(counted, key=lambda loader: loader.wait_ms + loader.epoch_start_ms)
    # Of one epoch that is still its first, or of a record without counts: the loader with the largest batches trains.
    return max(m.loaders, key=lambda loader: loader.batch_size or 0, default=None)


def epoch_starts_ms(loader: Loader) -> float:
    """What the starts of epochs cost, spread over the batches; 0 for a loader that never began a second epoch."""
    return loader.epoch_start_ms / loader.batches if loader.epochs and loader.batches else 0.0


def waits_ms(m: Measurement, loader: Loader) -> float:
    """What a step waits for batches, without what the starts of epochs cost."""
    return phase_ms(m, "loader") - epoch_starts_ms(loader) * (m.micro_batches or 1.0)


def most_saved_ms(m: Measurement, loader: Loader, workers: int) -> float:
    """A batch takes a process as long as before: ``workers`` of them give one in that time over their number."""
    one_batch_ms = loader.num_workers * step_ms(m) if loader.num_workers else phase_ms(m, "loader")
    return step_ms(m) - one_batch_ms / workers


def pinning_is_slowest(loader: Loader) -> bool:
    """Whether batches pile up before the one thread that pins them: more workers would only make the pile higher.

    Not known where the loader has a collate_fn of its own: its batches are counted before a worker has sent them.
    """
    piles_up = loader.batches > 0 and loader.unpinned >= _PILE * loader.batches
    return loader.pin_memory and loader.default_collate is True and piles_up


def sends_much(m: Measurement, loader: Loader) -> bool:
    """Whether what it sends is what it costs: then new shared memory for every batch is the limit, not the workers."""
    return sent_mib(m, loader) / 1024 >= _MUCH_GIB_PER_S * step_ms(m) / 1e3


def sent_mib(m: Measurement, loader: Loader) -> float:
    """What the loader sends a step; of a record that does not say it, what is copied to the GPU."""
    if loader.batch_mib is not None:
        return loader.batch_mib * (m.micro_batches or 1.0)
    return sum(copy.mib_per_step for copy in copies_to_gpu(m))


def rare_waits(m: Measurement, loader: Loader) -> list[float]:
    """Waits between which the workers catch up. Waits that come round with the workers (every eighth step with eight of
    them), or at almost every step, mean that they are too slow: a longer queue would run empty too."""
    series = m.series_ms.get("loader", ())
    long = [number for number, wait in enumerate(series) if wait > _LONG * step_ms(m)]
    apart = [after - before for before, after in zip(long, long[1:])]
    if not long or len(long) > _RARE * len(series) or (apart and median(apart) <= loader.num_workers):
        return []
    return [series[number] for number in long]


def spot(loader: Loader | None) -> tuple[str, int] | None:
    return (loader.where.file, loader.where.line) if loader is not None and loader.where else None

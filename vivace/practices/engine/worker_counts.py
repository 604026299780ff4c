"""How many loader workers make sense: as many as cores where they compute, more where they wait for storage."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vivace.records.measurement import Loader, Measurement

__all__ = ["MOST_WAITING", "cores_of_a_rank", "most_workers", "needed_workers", "they_wait"]

# When steps wait for them, workers that compute are busy for 0.98 to 1.00 of the time, alone or beside many others (a
# wait for a core counts as busy); workers that sleep 2 ms per sample for 0.10 to 0.32, on two cores with a load of 15
# (worker_busy.csv).
_COMPUTES = 0.5
MOST_WAITING = 32
_FREE_MEMORY_SHARE = 0.5  # that more workers may take


def cores_of_a_rank(m: Measurement) -> int:
    return max(1, int(m.machine.cpu.usable_cores) // m.ranks_per_host)


def they_wait(m: Measurement) -> bool:
    """Whether the workers mostly wait, for storage or a network, rather than compute."""
    return m.workers_busy is not None and m.workers_busy < _COMPUTES


def most_workers(m: Measurement, loader: Loader) -> int:
    """Per rank. ``loader`` is the one in use: its workers show what they do and what memory they take."""
    cores = cores_of_a_rank(m)
    if not they_wait(m) or m.workers_busy is None:
        return cores
    to_fill_the_cores = math.floor(cores / max(m.workers_busy, cores / MOST_WAITING))
    return max(cores, min(to_fill_the_cores, _that_fit(m, loader)))


def needed_workers(loader: Loader, step_ms: float, waits_ms: float) -> int:
    """So that steps no longer wait, if each worker goes on as it does: a power of two."""
    rest_ms = max(step_ms - waits_ms, step_ms / MOST_WAITING)
    needed = loader.num_workers * step_ms / rest_ms
    return int(2 ** math.ceil(math.log2(max(1.0, needed))))


def _that_fit(m: Measurement, loader: Loader) -> int:
    """Into half of the host's memory that this job leaves free."""
    host, limit_gib = m.memory.host, m.machine.memory_limit_gib or m.machine.memory_gib
    if host is None or not loader.num_workers:
        return MOST_WAITING
    batches_gib = (loader.batch_mib or 0.0) / 1024 * (loader.prefetch_factor or 2)
    one_gib = host.children_rss_gib / max(1, host.children) + batches_gib
    free_gib = max(0.0, limit_gib - host.rss_peak_gib - host.children_rss_gib)
    more = _FREE_MEMORY_SHARE * free_gib / max(one_gib, 1e-9) / m.ranks_per_host
    return loader.num_workers + math.floor(min(more, float(MOST_WAITING)))

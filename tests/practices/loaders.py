"""A DataLoader as a measurement describes it, for tests of the loader practices."""

from __future__ import annotations

from typing import Any

from vivace.records.measurement import Loader
from vivace.records.structure import Spot

__all__ = ["loader"]


def loader(**fields: Any) -> Loader:
    """In its first epoch, without workers: 30 batches, each waited for 40 ms."""
    usual = {
        "batch_size": 32, "num_workers": 0, "pin_memory": False, "persistent_workers": False, "prefetch_factor": None,
        "iterable": False, "where": Spot(file="train.py", line=12), "batches": 30, "wait_ms": 1200.0,
    }  # fmt: skip
    return Loader(**{**usual, **fields})

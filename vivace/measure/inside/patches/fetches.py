"""Batches that a loader's worker makes: sampled there while the training samples its own lines, else untouched."""

from __future__ import annotations

import os
from typing import Any

from torch.utils.data import get_worker_info
from torch.utils.data._utils import fetch as fetching

from vivace.measure.inside.lines.workers import WorkerLines
from vivace.measure.inside.patches import in_place_of

__all__ = ["install"]

_lines: dict[int, WorkerLines] = {}  # by process


def install() -> None:
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        kind = getattr(fetching, name, None)  # private parts of torch: without them workers are not sampled
        if kind is not None:
            kind.fetch = in_place_of(kind.fetch, _watched(kind.fetch))


def _watched(original: Any) -> Any:
    def fetch(self: Any, *args: Any, **kwargs: Any) -> Any:
        if get_worker_info() is None:
            return original(self, *args, **kwargs)
        lines = _lines.get(os.getpid())
        if lines is None:
            lines = _lines[os.getpid()] = WorkerLines()
        if not lines.wanted:
            return original(self, *args, **kwargs)
        return lines.fetched(lambda: original(self, *args, **kwargs), fetch.__code__)

    return fetch

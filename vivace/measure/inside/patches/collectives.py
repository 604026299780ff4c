"""Collectives that the training loop calls itself (averaging gradients or metrics by hand); and, where vivace splits
the training over ranks, the waits for its own."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.compiler import is_compiling

from vivace.measure.inside.patches import in_place_of, unseen_by_dynamo
from vivace.measure.inside.steps.recorder import Recorder
from vivace.protocol.rank import is_split

__all__ = ["install"]

_NAMES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "broadcast", "all_to_all", "all_to_all_single", "barrier",
)  # fmt: skip


def install(recorder: Recorder) -> None:
    if not torch.distributed.is_available():
        return
    for name in _NAMES:
        original = getattr(dist, name)
        watched = _watched(recorder, original)
        setattr(dist, name, watched)
        setattr(sys.modules[original.__module__], name, watched)  # where it is defined: it pickles by that name
    if is_split():
        _watch_every_wait(recorder)


def _watch_every_wait(recorder: Recorder) -> None:
    """On a GPU the stream waits and not the host: the marks' events show it."""
    work: Any = dist.Work
    original = work.wait

    def wait(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not recorder.may_exchange():
            return original(*args, **kwargs)
        recorder.mark("comm+")
        try:
            return original(*args, **kwargs)
        finally:
            recorder.mark("comm-")

    work.wait = unseen_by_dynamo(wait)


def _watched(recorder: Recorder, original: Any) -> Any:
    def collective(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not recorder.here():
            return original(*args, **kwargs)
        recorder.mark("comm+")
        try:
            return original(*args, **kwargs)
        finally:
            recorder.mark("comm-")

    return in_place_of(original, collective)
